#include <fmt/format.h>

#include "demo/clients/clients.hpp"
#include "guard/error.hpp"
#include "guard/support/percent.hpp"
#include "server/http/client.hpp"

namespace fenceguard::proxy {
namespace {

class HttpClient : public RawClient {
 public:
  explicit HttpClient(const Url& url) : client_{"http://" + url.authority}, base_{base_of(url)} {}

  std::optional<std::string> read(const std::string& path) override {
    auto response = client_.send({.method = "GET", .target = target(path), .fields = {}, .body = {}});
    if (response.status == 404) return std::nullopt;
    if (response.status != 200) fail(response);
    return std::move(response.body);
  }

  void write(const std::string& path, const std::string& body) override {
    const auto response = client_.send({.method = "PUT", .target = target(path), .fields = {}, .body = body});
    if (response.status / 100 != 2) fail(response);
  }

  void remove(const std::string& path) override {
    const auto response =
        client_.send({.method = "DELETE", .target = target(path), .fields = {}, .body = {}});
    if (response.status / 100 != 2 && response.status != 404) fail(response);
  }

 private:
  static std::string base_of(const Url& url) { return url.path.ends_with('/') ? url.path : url.path + '/'; }
  [[nodiscard]] std::string target(const std::string& path) const {
    return base_ + percent_encode_path(path);
  }
  [[noreturn]] static void fail(const http::Response& response) {
    throw Unavailable(fmt::format("the storage answered {}", response.status));
  }

  http::Client client_;
  std::string base_;
};

}  // namespace

std::unique_ptr<RawClient> open_raw_client(const Url& url) {
  if (url.scheme != "http") throw InvalidInput("this goes to an http: storage only, not over TLS");
  return std::make_unique<HttpClient>(url);
}

}  // namespace fenceguard::proxy
