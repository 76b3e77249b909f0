#include "adapters/redis/client.hpp"

#include <utility>

#include "guard/url.hpp"

namespace fenceguard::redis {
namespace {

// EVALSHA or EVAL, as a command.
std::vector<std::string_view> command_of(const Run& run, bool by_hash, const std::string& key_count) {
  std::vector<std::string_view> words{by_hash ? "EVALSHA" : "EVAL",
                                      by_hash ? run.script.hash() : run.script.text(), key_count};
  words.insert(words.end(), run.keys.begin(), run.keys.end());
  words.insert(words.end(), run.arguments.begin(), run.arguments.end());
  return words;
}

bool is_unknown_script(const Reply& reply) {
  return reply.is_error() && reply.text.starts_with("NOSCRIPT");
}

}  // namespace

Client::Client(Address address) : address_{std::move(address)}, keys_{address_.prefix} {
  is_cluster_ = connection({}).server().is_cluster;
}

Client::Client(std::string_view url) : Client{Url::parse(url)} {}
Client::Client(const Url& url) : Client{address_of(url)} {}

Connection& Client::connection(std::string_view) {
  if (connection_ && connection_->is_usable()) return *connection_;
  connection_.reset();
  return connection_.emplace(address_);
}

Reply Client::call(std::string_view key, Arguments arguments) {
  return connection(key).call(arguments);
}

Reply Client::run(const Run& run) {
  const auto key = run.keys.front();
  const auto key_count = std::to_string(run.keys.size());
  auto reply = connection(key).call(command_of(run, true, key_count));
  if (!is_unknown_script(reply)) return reply;
  return connection(key).call(command_of(run, false, key_count));
}

std::vector<Outcome<Reply>> Client::run_all(std::span<const Run> runs) {
  std::vector<Outcome<Reply>> outcomes;
  auto& link = connection({});
  std::vector<std::string> key_counts;
  for (const auto& run : runs) {
    key_counts.push_back(std::to_string(run.keys.size()));
    link.queue(command_of(run, true, key_counts.back()));
  }
  try {
    link.send();
    while (outcomes.size() < runs.size()) outcomes.emplace_back(link.receive());
  } catch (const Error&) {
    while (outcomes.size() < runs.size()) outcomes.emplace_back(current_fault());
    return outcomes;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!is_unknown_script(outcomes[i].value())) continue;
    try {
      outcomes[i] = connection({}).call(command_of(runs[i], false, key_counts[i]));
    } catch (const Error&) {
      outcomes[i] = current_fault();
    }
  }
  return outcomes;
}

}  // namespace fenceguard::redis
