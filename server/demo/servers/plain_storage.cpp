#include "server/demo/servers/plain_storage.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <string>

#include "server/http/server.hpp"

namespace fenceguard::demo {
namespace {

class Objects : public http::Handler {
 public:
  void handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/, http::Reply reply) override {
    reply(answer(request));
  }

  http::Response refuse(unsigned status, std::string_view why) override {
    return {.status = status, .fields = {}, .body = std::string{why}};
  }

 private:
  http::Response answer(http::Request& request) {
    const std::lock_guard lock{mutex_};
    const auto found = objects_.find(request.target);
    if (request.method == "PUT") {
      objects_[request.target] = std::move(request.body);
      return {.status = 204, .fields = {}, .body = {}};
    }
    if (request.method != "GET" && request.method != "DELETE")
      return {.status = 405, .fields = {}, .body = {}};
    if (found == objects_.end()) return {.status = 404, .fields = {}, .body = {}};
    if (request.method == "GET") return {.status = 200, .fields = {}, .body = found->second};
    objects_.erase(found);
    return {.status = 204, .fields = {}, .body = {}};
  }

  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
};

}  // namespace

void run_plain_storage() {
  Objects objects;
  http::Server server{1};
  fmt::print("{}\n", server.listen("127.0.0.1:0", objects, {}));
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) continue;
}

}  // namespace fenceguard::demo
