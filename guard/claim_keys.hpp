#pragma once

// ClaimKeys: signs claims when they are granted and checks them where they are used, so that nobody who was
// not granted a token can use one, and one buggy client cannot lock everybody out with an absurd number.
//
// A signature reads KEYID.BASE64URL, as in the header field Fencing-Signature: HMAC-SHA-256 (RFC 2104) over
// namespace, resource, token and holder, each preceded by its length, so that no two claims share a text. The
// sequence is the holder's own and is not signed.
//
// Immutable; thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "guard/claim.hpp"

namespace fenceguard {

class ClaimKeys {
 public:
  // Reads a file of keys, one a line: KEYID BASE64URL; empty lines and lines that begin with # are passed
  // over. KEYID: 1 to 32 of [A-Za-z0-9_-]; a key has 32 to 64 bytes. The first signs; one or two are valid at
  // a time, so that keys can be changed while the old one's claims are still in use. space: the namespace in
  // which the tokens are comparable, the same at everybody who signs or checks. Throws InvalidInput with the
  // line that is wrong, never with a key; and where others than its owner may read the file.
  [[nodiscard]] static ClaimKeys from_file(const std::string& path, std::string space);

  // The signature of the claim by the first key.
  [[nodiscard]] std::string sign(const Claim& claim) const;

  // Whether one of the keys made signature for this claim. Takes the same time wherever they differ.
  [[nodiscard]] bool verify(const Claim& claim, std::string_view signature) const;

 private:
  struct Key {
    std::string id;
    std::string secret;
  };
  ClaimKeys(std::vector<Key> keys, std::string space) : keys_{std::move(keys)}, space_{std::move(space)} {}

  std::vector<Key> keys_;
  std::string space_;
};

}  // namespace fenceguard
