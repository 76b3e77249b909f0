#include "demo/clients/clients.hpp"

#include "adapters/etcd/fences/address_beside_source.hpp"
#include "adapters/etcd/guard.hpp"

namespace fenceguard::etcd {
namespace {

// The demonstration's accounts: 'PLACE/accounts/42'.
class KeyClient : public FencedClient {
 public:
  KeyClient(const Url& url, const std::string& place)
      : client_{address_beside_source(url)}, guard_{client_}, place_{place + "/"} {}

  void remove(const std::string& /*path*/) override { (void)client_.txn({{}, {remove_all(place_)}, {}}); }

  std::optional<std::string> read(const std::string& path) override {
    const auto found = client_.range(get(place_ + path)).found;
    if (found.empty()) return std::nullopt;
    return found.front().value;
  }

  void write(const std::string& path, const std::string& body) override {
    (void)client_.txn({{}, {put(place_ + path, body)}, {}});
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    auto read = guard_.read(claim, {get(place_ + path)});
    if (!read.is_done() || read.answers.front().found.empty()) return {read.ruling, std::nullopt};
    return {read.ruling, read.answers.front().found.front().value};
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

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<KeyClient>(url, place);
}

}  // namespace fenceguard::etcd
