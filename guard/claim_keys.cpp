#include "guard/claim_keys.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "guard/error.hpp"
#include "guard/support/private_file.hpp"
#include "guard/support/text.hpp"

namespace fenceguard {
namespace {

constexpr std::size_t file_bytes_max = 16 * 1024;
constexpr std::size_t id_bytes_max = 32;
constexpr std::size_t space_bytes_max = 128;
constexpr std::size_t secret_bytes_min = 32;
constexpr std::size_t secret_bytes_max = 64;
constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// BASE64URL of RFC 4648, without padding.
std::string encode(std::string_view bytes) {
  std::string text;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char byte : bytes) {
    bits = bits << 8U | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) text += alphabet[bits >> (count - 6) & 63U];
  }
  if (count > 0) text += alphabet[bits << (6 - count) & 63U];
  return text;
}

// Nothing where text is not what encode() makes.
std::optional<std::string> decode(std::string_view text) {
  std::string bytes;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char digit : text) {
    const auto value = alphabet.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6U | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255U);
  }
  if (encode(bytes) != text) return std::nullopt;
  return bytes;
}

void add_netstring(std::string& text, std::string_view part) {
  text += std::to_string(part.size());
  text += ':';
  text += part;
  text += ',';
}

}  // namespace

ClaimKeys::ClaimKeys(std::string path, std::string space) : path_{std::move(path)}, space_{std::move(space)} {
  if (space_.empty() || space_.size() > space_bytes_max || !is_visible_ascii(space_)) {
    throw InvalidInput("the namespace of signed claims is 1 to 128 bytes of visible ASCII");
  }
  present_->keys = load(path_, Reading::first);
}

ClaimKeys ClaimKeys::from_file(const std::string& path, std::string space) {
  return ClaimKeys{path, std::move(space)};
}

void ClaimKeys::reload() {
  auto fresh = load(path_, Reading::again);
  const std::scoped_lock lock{present_->mutex};
  present_->keys = std::move(fresh);
}

std::string ClaimKeys::sign(const Claim& claim) const {
  auto signature = signature_by(keys()->front(), text_of(claim));
  if (signature.empty()) throw Unavailable("a claim could not be signed");
  return signature;
}

bool ClaimKeys::verify(const Claim& claim, std::string_view signature) const {
  const auto text = text_of(claim);
  bool is_good = false;
  for (const Key& key : *keys()) {
    const auto expected = signature_by(key, text);
    is_good |= !expected.empty() && expected.size() == signature.size() &&
               CRYPTO_memcmp(expected.data(), signature.data(), expected.size()) == 0;
  }
  return is_good;
}

// Empty where OpenSSL could not do it.
std::string ClaimKeys::signature_by(const Key& key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), code.data(), &size) == nullptr) {
    return {};
  }
  return key.id + "." + encode({reinterpret_cast<const char*>(code.data()), size});
}

std::string ClaimKeys::text_of(const Claim& claim) const {
  std::string text;
  add_netstring(text, space_);
  add_netstring(text, claim.resource.name());
  add_netstring(text, to_string(claim.token));
  add_netstring(text, claim.holder.id());
  return text;
}

std::shared_ptr<const ClaimKeys::Keys> ClaimKeys::keys() const {
  const std::scoped_lock lock{present_->mutex};
  return present_->keys;
}

std::shared_ptr<const ClaimKeys::Keys> ClaimKeys::load(const std::string& path, Reading reading) {
  constexpr auto kind = "the claim key file";
  const auto refuse = [&](const std::string& why) {
    return InvalidInput(std::string{kind} + " " + path + " " + why);
  };
  std::istringstream lines{read_private_file(kind, path, file_bytes_max, reading)};
  auto keys = std::make_shared<Keys>();
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.starts_with('#')) continue;
    std::istringstream words{line};
    std::string id;
    std::string encoded;
    std::string rest;
    if (!(words >> id)) continue;
    const auto where = "line " + std::to_string(number);
    if (!(words >> encoded) || words >> rest) throw refuse(where + " is not 'KEYID BASE64URL'");
    try {
      keys->push_back(parse_key(id, encoded));
    } catch (const InvalidInput& error) {
      throw refuse(where + ": " + error.what());
    }
    if (keys->size() == 2 && keys->front().id == id) throw refuse(where + ": this KEYID comes twice");
    if (keys->size() > keys_max) throw refuse("holds more than two keys");
  }
  if (keys->empty()) throw refuse("holds no key: one line is 'KEYID BASE64URL'");
  return keys;
}

ClaimKeys::Key ClaimKeys::parse_key(const std::string& id, const std::string& encoded) {
  const auto is_in_id = [](char c) { return alphabet.find(c) != std::string_view::npos; };
  if (id.size() > id_bytes_max || !std::ranges::all_of(id, is_in_id)) {
    throw InvalidInput("a KEYID is 1 to 32 letters, digits, '-' or '_'");
  }
  auto secret = decode(encoded);
  if (!secret) throw InvalidInput("a key is BASE64URL without padding");
  if (secret->size() < secret_bytes_min || secret->size() > secret_bytes_max) {
    throw InvalidInput("a key has 32 to 64 bytes before it is encoded");
  }
  return {id, std::move(*secret)};
}

}  // namespace fenceguard
