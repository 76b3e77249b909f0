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

  void make_place() override {}
  void remove_place() override {
    for (const auto& key : written_) {
      const std::string_view words[] = {"DEL", key};
      (void)unless_error("removing an account", client_.call(key, words));
    }
  }

  std::optional<std::string> read(const std::string& path) override {
    const auto key = key_of(path);
    const std::string_view words[] = {"GET", key};
    const auto reply = unless_error("reading an account", client_.call(key, words));
    if (reply.is_nil()) return std::nullopt;
    return reply.text;
  }

  void write(const std::string& path, const std::string& body) override {
    const auto key = key_of(path);
    const std::string_view words[] = {"SET", key, body};
    (void)unless_error("writing an account", client_.call(key, words));
    written_.push_back(key);
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    auto read = Guard{client_}.read(claim, {"GET", key_of(path)});
    if (read.replies.empty()) return {read.ruling, std::nullopt};
    const auto reply = unless_error("reading an account", std::move(read.replies.front()));
    return {read.ruling, reply.is_nil() ? std::nullopt : std::optional{reply.text}};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    auto written = Guard{client_}.write(claim, {"SET", key_of(path), body});
    for (auto& reply : written.replies) (void)unless_error("writing an account", std::move(reply));
    return written.ruling;
  }

 private:
  [[nodiscard]] std::string key_of(const std::string& path) const {
    return fmt::format("{{{}}}:{}", path, place_);
  }

  Client client_;
  std::string place_;
  std::vector<std::string> written_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<KeyClient>(url, place);
}

}  // namespace fenceguard::redis
