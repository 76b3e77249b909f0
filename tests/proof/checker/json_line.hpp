#pragma once

// JsonLine: one flat JSON object, {"name":"text","name":12,"name":null}, read without a copy where no text
// is escaped. Histories are read by the million lines, and are nothing but this.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard::proof {

class JsonLine {
 public:
  struct Field {
    std::string_view name;
    enum class Type { text, number, null } type = Type::null;
    std::string_view text{};
    std::int64_t number = 0;
  };

  // Throws std::invalid_argument with a sentence. The line outlives what is read from it.
  void parse(std::string_view line);
  [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }

 private:
  [[nodiscard]] bool take(char c);
  void expect(char c);
  [[nodiscard]] std::string_view text();
  [[nodiscard]] std::string_view unescaped(std::size_t begin);
  [[nodiscard]] std::int64_t number();

  std::string_view line_;
  std::size_t at_ = 0;
  std::vector<Field> fields_;
  std::vector<std::string> unescaped_;
};

}  // namespace fenceguard::proof
