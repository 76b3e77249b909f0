#include "server/demo/clients/clients.hpp"

#include <fmt/format.h>

#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/guard.hpp"
#include "adapters/redis/wire/errors.hpp"

namespace fenceguard::redis {
namespace {

// The demonstration's accounts: '{accounts/42}:PLACE', in the slot of their fence.
class KeyClient : public FencedClient {
 public:
  KeyClient(const Url& url, std::string place)
      : client_{address_beside_source(url)}, place_{std::move(place)} {}

  void remove(const std::string& path) override { (void)call({"DEL", key_of(path)}); }

  std::optional<std::string> read(const std::string& path) override {
    return body_of(call({"GET", key_of(path)}));
  }

  void write(const std::string& path, const std::string& body) override {
    (void)call({"SET", key_of(path), body});
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    auto read = Guard{client_}.read(claim, {"GET", key_of(path)});
    if (read.replies.empty()) return {read.ruling, std::nullopt};
    return {read.ruling, body_of(unless_error("reading an account", std::move(read.replies.front())))};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    auto written = Guard{client_}.write(claim, {"SET", key_of(path), body});
    for (auto& reply : written.replies) (void)unless_error("writing an account", std::move(reply));
    return written.ruling;
  }

 private:
  // One command, whose second word is its key.
  Reply call(const std::vector<std::string>& words) {
    const std::vector<std::string_view> views{words.begin(), words.end()};
    return unless_error("using an account", client_.call(words.at(1), views));
  }

  static std::optional<std::string> body_of(const Reply& reply) {
    return reply.is_nil() ? std::nullopt : std::optional{reply.text};
  }

  [[nodiscard]] std::string key_of(const std::string& path) const {
    return fmt::format("{{{}}}:{}", path, place_);
  }

  Client client_;
  std::string place_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<KeyClient>(url, place);
}

}  // namespace fenceguard::redis
