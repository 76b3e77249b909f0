#include "demo/servers/redis.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "guard/source/url.hpp"

namespace fenceguard::demo {

using redis::Reply;

RedisServer::RedisServer(Harness& harness, std::vector<std::string> options,
                         std::map<std::string, std::string> environment)
    : LocalServer{harness, "redis-server"},
      options_{std::move(options)},
      environment_{std::move(environment)} {
  open();
}

std::string RedisServer::url() const {
  return fmt::format("redis://{}?timeout=2s&connect_timeout=1s", host());
}

ClientOptions RedisServer::client_options(const std::string& lane, bool guarded) const {
  return {.storage = url(),
          .place = "demo",
          .guarded = guarded,
          .source = url(),
          .lock_lane = lane,
          .storage_lane = lane};
}

Reply RedisServer::call(const std::vector<std::string>& words) const {
  redis::Connection connection{redis::address_of(Url::parse(url()))};
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return connection.call(views);
}

Reply RedisServer::ask(const std::string& actor, const std::string& target,
                       const std::vector<std::string>& words, Tone tone) {
  auto reply = call(words);
  harness().note({actor, fmt::format("{}", fmt::join(words, " ")), target, shown(reply), tone});
  return reply;
}

Reply RedisServer::take_plainly(const std::string& actor, const std::string& target,
                                std::chrono::milliseconds ttl, Tone tone) {
  return ask(actor, target,
             {"SET", lock_key, std::string{actor.back()}, "NX", "PX", std::to_string(ttl.count())}, tone);
}

std::string RedisServer::info(const std::string& section, const std::string& name) const {
  const auto text = call({"INFO", section}).text;
  const auto at = text.find(name + ':');
  if (at == std::string::npos) return {};
  const auto start = at + name.size() + 1;
  return text.substr(start, text.find('\r', start) - start);
}

void RedisServer::restart_empty() {
  kill();
  std::filesystem::remove_all(folder());
  std::filesystem::create_directories(folder());
  restart();
}

Command RedisServer::command() {
  Command command{.program = "redis-server", .package = "redis-server"};
  command.arguments = {"--port",       std::to_string(port()),
                       "--bind",       "127.0.0.1",
                       "--dir",        folder(),
                       "--logfile",    log_file(),
                       "--save",       "",
                       "--appendonly", "no",
                       "--daemonize",  "no"};
  command.arguments.insert(command.arguments.end(), options_.begin(), options_.end());
  command.environment = environment_;
  return command;
}

bool RedisServer::serves() {
  return info("server", "process_id") == std::to_string(pid());
}

bool RedisServer::is_reason(const std::string& line) const {
  return line.find(" # ") != std::string::npos;
}

std::string shown(const Reply& reply) {
  switch (reply.kind) {
    case Reply::Kind::nil:
      return "(nil)";
    case Reply::Kind::integer:
      return std::to_string(reply.integer);
    case Reply::Kind::array:
      return fmt::format("{} elements", reply.elements.size());
    case Reply::Kind::status:
    case Reply::Kind::text:
    case Reply::Kind::error:
      break;
  }
  return reply.text;
}

}  // namespace fenceguard::demo
