#include "adapters/etcd/door.hpp"

#include "adapters/etcd/address_beside_source.hpp"
#include "adapters/etcd/guard.hpp"

namespace fenceguard::etcd {
namespace {

// The demonstration's accounts: 'PLACE/accounts/42'.
class KeyDoor : public DirectDoor {
 public:
  KeyDoor(const Url& url, const std::string& place)
      : client_{address_beside_source(url)}, guard_{client_}, place_{place + "/"} {}

  void make_place() override {}
  void remove_place() override { (void)client_.txn({{}, {remove_all(place_)}, {}}); }

  std::optional<std::string> read(const std::string& path) override {
    const auto found = client_.range(get(place_ + path)).found;
    if (found.empty()) return std::nullopt;
    return found.front().value;
  }

  void write(const std::string& path, const std::string& body) override {
    (void)client_.txn({{}, {put(place_ + path, body)}, {}});
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    return guard_.write(claim, {put(place_ + path, body)}).ruling;
  }

 private:
  Client client_;
  Guard guard_;
  const std::string place_;
};

}  // namespace

std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place) {
  return std::make_unique<KeyDoor>(url, place);
}

}  // namespace fenceguard::etcd
