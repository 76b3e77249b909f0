#include "adapters/redis/door.hpp"

#include <fmt/format.h>

#include "adapters/redis/address_beside_source.hpp"
#include "adapters/redis/errors.hpp"
#include "adapters/redis/guard.hpp"

namespace fenceguard::redis {
namespace {

// The demonstration's accounts: '{accounts/42}:PLACE', in the slot of their fence.
class KeyDoor : public DirectDoor {
 public:
  KeyDoor(const Url& url, std::string place)
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

std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place) {
  return std::make_unique<KeyDoor>(url, place);
}

}  // namespace fenceguard::redis
