#include "adapters/redis/wire/cluster.hpp"

#include <algorithm>

#include "adapters/redis/keys.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {
namespace {

// CRC-16/XMODEM: polynomial 0x1021, from 0, not reflected.
constexpr std::array<std::uint16_t, 256> crc_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
    table[i] = static_cast<std::uint16_t>(crc);
  }
  return table;
}

constexpr auto table = crc_table();

}  // namespace

std::size_t slot_of(std::string_view key) noexcept {
  unsigned crc = 0;
  for (const char c : resource_of_key(key))
    crc = (crc << 8 ^ table[(crc >> 8 ^ static_cast<unsigned char>(c)) & 0xff]) & 0xffff;
  return crc % slot_count;
}

std::optional<Redirection> redirection_of(const Reply& reply, const Endpoint& from) {
  if (!reply.is_error()) return std::nullopt;
  std::string_view text = reply.text;
  Redirection redirection;
  if (text.starts_with("MOVED ")) {
    text.remove_prefix(6);
  } else if (text.starts_with("ASK ")) {
    redirection.kind = Redirection::Kind::ask;
    text.remove_prefix(4);
  } else {
    return std::nullopt;
  }
  const auto space = text.find(' ');
  const auto slot = parse_decimal(text.substr(0, space));
  if (space == text.npos || !slot || *slot >= static_cast<std::int64_t>(slot_count)) return std::nullopt;
  redirection.slot = static_cast<std::size_t>(*slot);
  // HOST:PORT, where a host of IPv6 is written without brackets, and '?' is one that the server does not
  // know.
  const auto place = text.substr(space + 1);
  const auto colon = place.rfind(':');
  const auto port = colon == place.npos ? std::nullopt : parse_decimal(place.substr(colon + 1));
  if (!port || *port == 0 || *port > 65'535 || place.starts_with('?')) return std::nullopt;
  redirection.to = {std::string{place.substr(0, colon)}, static_cast<int>(*port), {}};
  if (redirection.to.host.empty()) redirection.to.host = from.host;
  if (redirection.to.host.empty()) return std::nullopt;
  return redirection;
}

bool is_try_again(const Reply& reply) noexcept {
  return reply.is_error() && (reply.text.starts_with("TRYAGAIN") || reply.text.starts_with("CLUSTERDOWN"));
}

void SlotMap::learn(const Reply& slots, const Endpoint& from) {
  servers_.clear();
  std::ranges::fill(by_slot_, nobody);
  for (const auto& range : slots.elements) {
    if (range.elements.size() < 3 || range.elements[2].elements.size() < 2) continue;
    const auto& master = range.elements[2].elements;
    Endpoint server{master[0].text, static_cast<int>(master[1].integer), {}};
    if (server.host == "?") continue;
    // A server that does not know its own address says nothing: it is the one that was asked.
    if (server.host.empty()) server = {from.host, from.host.empty() ? from.port : server.port, from.socket};
    const auto number = number_of(server);
    const auto first = std::clamp<std::int64_t>(range.elements[0].integer, 0, slot_count - 1);
    const auto last = std::clamp<std::int64_t>(range.elements[1].integer, first, slot_count - 1);
    std::fill(by_slot_.begin() + first, by_slot_.begin() + last + 1, number);
  }
}

void SlotMap::set(std::size_t slot, const Endpoint& server) {
  by_slot_.at(slot) = number_of(server);
}

const Endpoint* SlotMap::find(std::size_t slot) const noexcept {
  const auto number = by_slot_[slot];
  return number == nobody ? nullptr : &servers_[number];
}

std::uint16_t SlotMap::number_of(const Endpoint& server) {
  const auto number = std::ranges::find(servers_, server) - servers_.begin();
  if (number == std::ssize(servers_)) servers_.push_back(server);
  return static_cast<std::uint16_t>(number);
}

}  // namespace fenceguard::redis
