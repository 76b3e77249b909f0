#pragma once

// What a claim names: Resource and Holder. Each is checked once, when it is made, so that later code need not
// check again.
//
// Values; safe to copy and to use from any thread.

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard {

// What a lock protects, named by a string such as accounts/42: 1 to 512 bytes of UTF-8, no control
// characters, no empty or dot segment between slashes.
class Resource {
 public:
  static constexpr std::size_t bytes_max = 512;

  // Throws InvalidInput with the rule that the name breaks.
  explicit Resource(std::string name);

  [[nodiscard]] static std::optional<Resource> parse(std::string_view name);

  // Why the name is not a resource, as a sentence; empty if it is one.
  [[nodiscard]] static std::string_view objection(std::string_view name) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  friend auto operator<=>(const Resource&, const Resource&) = default;

 private:
  std::string name_;
};

// The grantee of a token: an opaque string, unique per grant, 1 to 128 bytes of visible ASCII. Left out, it
// is the empty holder, which is a holder like any other: two clients that leave it out cannot be told apart.
class Holder {
 public:
  static constexpr std::size_t bytes_max = 128;

  // The empty holder.
  Holder() = default;
  // Throws InvalidInput unless id is empty or 1 to 128 bytes of visible ASCII.
  explicit Holder(std::string id);

  [[nodiscard]] static std::optional<Holder> parse(std::string_view id);

  // A fresh random 128-bit id from the kernel, as 32 hexadecimal digits.
  [[nodiscard]] static Holder random();

  [[nodiscard]] const std::string& id() const noexcept { return id_; }
  friend auto operator<=>(const Holder&, const Holder&) = default;

 private:
  std::string id_;
};

}  // namespace fenceguard
