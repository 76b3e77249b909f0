#include "adapters/http/storage.hpp"

#include <fmt/format.h>

#include "adapters/http/lanes.hpp"
#include "adapters/http/proxy_service.hpp"
#include "adapters/http/upstream_options.hpp"
#include "guard/answered_fences.hpp"
#include "guard/error.hpp"
#include "guard/http/client.hpp"
#include "guard/percent.hpp"

namespace fenceguard::proxy {
namespace {

class HttpStorage : public Storage {
 public:
  HttpStorage(const Url& url, const StorageOptions& options)
      : upstream_{UpstreamOptions::from(url, options.lane)},
        state_{options.lane.state},
        lanes_{options.lane, options.jump_max, options.cache_entries} {}

  FenceStore& fences() override { return answered_; }
  DepthRecord* depth_record() override { return state_->depth_record(); }
  TokenSource* own_source() override { return state_->own_source(); }
  std::shared_ptr<DataService> data_service(const ServiceContext& context) override {
    return std::make_shared<ProxyService>(context, lanes_, upstream_);
  }

 private:
  AnsweredFences answered_;  // first, so that it ends last
  const UpstreamOptions upstream_;
  const std::shared_ptr<Storage> state_;
  Lanes lanes_;
  AnsweredFences::Access access_{answered_, lanes_.fences()};
};

class HttpDoor : public UnguardedDoor {
 public:
  explicit HttpDoor(const Url& url) : client_{"http://" + url.authority}, base_{base_of(url)} {}

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

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  if (options.lane.state == nullptr) {
    throw InvalidInput(
        "the fences of an http: storage are kept by the guard in front of it; reach that one by --server "
        "http://HOST:PORT");
  }
  if (options.lane.state->lane_state() == nullptr) {
    throw InvalidInput("--state: only a file can be locked for as long as a process lives; use sqlite:PATH");
  }
  return std::make_unique<HttpStorage>(url, options);
}

std::unique_ptr<UnguardedDoor> open_unguarded(const Url& url) {
  return std::make_unique<HttpDoor>(url);
}

}  // namespace fenceguard::proxy
