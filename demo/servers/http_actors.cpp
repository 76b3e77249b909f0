#include "demo/servers/http_actors.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <utility>

#include "server/http/client.hpp"
#include "server/http/server.hpp"

namespace fenceguard::demo {
namespace {

void say(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

class Actor : public http::Handler {
 public:
  virtual void obey(const std::string& /*command*/) {}
  http::Response refuse(unsigned status, std::string_view why) override {
    return {.status = status, .fields = {}, .body = std::string{why}};
  }
};

void run(Actor& actor) {
  http::Server server{1};
  say(server.listen("127.0.0.1:0", actor, {}));
  for (std::string line; std::getline(std::cin, line);) actor.obey(line);
}

// The server's only thread makes all calls.
class Objects : public Actor {
 public:
  void handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/, http::Reply reply) override {
    reply(answer(request));
  }

 private:
  http::Response answer(http::Request& request) {
    const auto status = [](unsigned number) {
      return http::Response{.status = number, .fields = {}, .body = {}};
    };
    const auto found = objects_.find(request.target);
    if (request.method == "PUT") {
      objects_[request.target] = std::move(request.body);
      return status(204);
    }
    if (request.method != "GET" && request.method != "DELETE") return status(405);
    if (found == objects_.end()) return status(404);
    if (request.method == "GET") return {.status = 200, .fields = {}, .body = found->second};
    objects_.erase(found);
    return status(204);
  }

  std::map<std::string, std::string> objects_;
};

// The server's thread handles requests, the main thread obeys commands.
class Network : public Actor {
 public:
  explicit Network(const std::string& storage) : storage_{"http://" + storage} {
    (void)http::Client{storage_};  // refuses a malformed address
  }

  void handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/, http::Reply reply) override {
    std::function<void()> delivery = [this, request = std::move(request), reply = std::move(reply)] {
      auto response = http::Client{storage_}.send(
          {.method = request.method, .target = request.target, .fields = {}, .body = request.body});
      reply({.status = response.status, .fields = {}, .body = std::move(response.body)});
    };
    if (!hold(delivery)) delivery();
  }

  void obey(const std::string& command) override {
    if (command == "hold") {
      const std::lock_guard lock{mutex_};
      is_holding_next_ = true;
      say("ready");
    } else if (command == "release") {
      if (const auto held = take_held()) held();
      say("released");
    }
  }

 private:
  // Moves delivery out and returns true if this is the one to hold.
  bool hold(std::function<void()>& delivery) {
    const std::lock_guard lock{mutex_};
    if (!std::exchange(is_holding_next_, false)) return false;
    held_ = std::move(delivery);
    say("held");
    return true;
  }

  std::function<void()> take_held() {
    const std::lock_guard lock{mutex_};
    is_holding_next_ = false;
    return std::exchange(held_, {});
  }

  const std::string storage_;
  std::mutex mutex_;
  bool is_holding_next_ = false;
  std::function<void()> held_;
};

}  // namespace

void run_plain_storage() {
  Objects objects;
  run(objects);
}

void run_network(const std::string& storage) {
  Network network{storage};
  run(network);
}

}  // namespace fenceguard::demo
