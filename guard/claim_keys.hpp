#pragma once

// ClaimKeys: signs claims when they are granted and checks them where they are used, so that a client cannot
// use a token that it was not granted, and one buggy client cannot lock all others out with an absurd number.
//
// A signature reads KEYID.BASE64URL, as in the header field Fencing-Signature: HMAC-SHA-256 (RFC 2104) over
// namespace, resource, token and holder, each as a netstring (its length in bytes, a colon, itself, a comma),
// so that no two claims share a text: '10:fenceguard,11:accounts/42,2:34,4:mine,'. The sequence is the
// holder's own and is not signed.
//
// Thread-safe.

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "guard/claim.hpp"

namespace fenceguard {

enum class Reading;

class ClaimKeys {
 public:
  static constexpr std::size_t keys_max = 2;

  // Reads a file of keys, one a line: KEYID BASE64URL; empty lines and lines that begin with # are passed
  // over. KEYID: 1 to 32 of [A-Za-z0-9_-]; a key has 32 to 64 bytes. The first signs; one or two are valid at
  // a time, so that keys can be changed while the old one's claims are still in use. space: the namespace in
  // which the tokens are comparable, the same at every signer and verifier; 1 to 128 bytes of visible ASCII.
  // Throws InvalidInput with the line that is wrong, never with a key; and where others than its owner may
  // read the file.
  [[nodiscard]] static ClaimKeys from_file(const std::string& path, std::string space);

  // Reads the file again; on InvalidInput the old keys stay.
  void reload();

  // The signature of the claim by the first key. Throws Unavailable where there is no memory for it.
  [[nodiscard]] std::string sign(const Claim& claim) const;

  // Whether one of the keys made signature for this claim. Takes the same time wherever they differ.
  [[nodiscard]] bool verify(const Claim& claim, std::string_view signature) const;

 private:
  struct Key {
    std::string id;
    std::string secret;
  };
  using Keys = std::vector<Key>;
  struct Present {
    std::mutex mutex;
    std::shared_ptr<const Keys> keys;
  };

  ClaimKeys(std::string path, std::string space);
  [[nodiscard]] static std::shared_ptr<const Keys> load(const std::string& path, Reading reading);
  [[nodiscard]] static Key parse_key(const std::string& id, const std::string& encoded);
  [[nodiscard]] static std::string signature_by(const Key& key, std::string_view text);
  [[nodiscard]] std::string text_of(const Claim& claim) const;
  [[nodiscard]] std::shared_ptr<const Keys> keys() const;

  std::string path_;
  std::string space_;
  std::unique_ptr<Present> present_ = std::make_unique<Present>();
};

}  // namespace fenceguard
