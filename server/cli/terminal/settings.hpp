#pragma once

// Settings: what a command was told, by flags, by environment variables and by an INI file, in this order of
// precedence. One table per command says what there is; parsing, --help, the example configuration and the
// list of variables that exec keeps from its command all follow from it.
//
// Values are checked when they are read, so the getters cannot fail. No message ever holds a value of a kind
// that may carry a password. Values, not thread-safe.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "guard/resource.hpp"
#include "guard/source/url.hpp"
#include "guard/token.hpp"

namespace fenceguard::cli {

enum class Kind { flag, text, file, address, number, duration, resource, token, holder, url, secret };

struct Setting {
  std::string_view name;           // --name, FENCEGUARD_NAME, 'name = …'; a secret has no flag
  Kind kind = Kind::text;          // what its value must be
  std::string_view placeholder{};  // in --help; empty for a flag
  std::string_view fallback{};     // the value where none is given; empty: none
  std::string_view help{};
  bool is_repeatable = false;
  bool is_required = false;
  // Settings that cannot be given with it. As a flag it stands above those of the environment and the file,
  // and they as flags above it.
  std::span<const std::string_view> excludes{};
};

// FENCEGUARD_LISTEN for 'listen'.
[[nodiscard]] std::string variable_name(std::string_view setting);

// The text in lines of at most 100 columns; every line but the first begins with indent.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent);

// The lines of --help for these settings.
[[nodiscard]] std::string describe(std::span<const Setting> table);

// An INI file with every setting at its default, commented out.
[[nodiscard]] std::string example_configuration(std::span<const Setting> table);

class Settings {
 public:
  // Reads arguments (flags only), the process's environment and the file that --config names. known_elsewhere
  // are settings of other commands: the file may hold them, and they are passed over; std::nullopt: whatever
  // else it holds is. Throws InvalidInput with the name of the setting that is wrong. REQUIRES: the texts
  // behind table outlive the settings.
  [[nodiscard]] static Settings read(std::span<const Setting> table,
                                     const std::vector<std::string>& arguments,
                                     std::optional<std::span<const std::string_view>> known_elsewhere);

  // The command has this setting.
  [[nodiscard]] bool has(std::string_view name) const noexcept;

  // Given by flag, variable or file, and not merely the default.
  [[nodiscard]] bool is_given(std::string_view name) const;

  // The value given, or else the default. The typed ones REQUIRE that the setting has a value and that kind.
  [[nodiscard]] bool is_on(std::string_view flag) const;
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> list(std::string_view name) const;
  [[nodiscard]] std::chrono::milliseconds duration(std::string_view name) const;
  [[nodiscard]] std::int64_t number(std::string_view name) const;
  [[nodiscard]] Resource resource(std::string_view name = "resource") const { return Resource{text(name)}; }
  [[nodiscard]] Token token(std::string_view name = "token") const { return *Token::parse(text(name)); }
  [[nodiscard]] Holder holder(std::string_view name = "holder") const { return Holder{text(name)}; }
  // Nothing if the setting has no value.
  [[nodiscard]] std::optional<Url> url(std::string_view name) const;

  // What stood behind '--'.
  std::vector<std::string> command;

 private:
  [[nodiscard]] const Setting& find(std::string_view name) const;

  std::vector<Setting> table_;
  std::map<std::string, std::vector<std::string>, std::less<>> given_;
};

}  // namespace fenceguard::cli
