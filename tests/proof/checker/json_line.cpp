#include "tests/proof/checker/json_line.hpp"

#include <charconv>

namespace fenceguard::proof {

void JsonLine::parse(std::string_view line) {
  line_ = line;
  at_ = 0;
  fields_.clear();
  unescaped_.clear();
  unescaped_.reserve(32);  // what was handed out must not move
  expect('{');
  if (!take('}')) {
    do {
      Field field;
      field.name = text();
      expect(':');
      while (at_ < line_.size() && line_[at_] == ' ') ++at_;
      if (at_ < line_.size() && line_[at_] == '"') {
        field.type = Field::Type::text;
        field.text = text();
      } else if (line_.substr(at_, 4) == "null") {
        at_ += 4;
      } else {
        field.type = Field::Type::number;
        field.number = number();
      }
      for (const Field& other : fields_) {
        if (other.name == field.name)
          throw std::invalid_argument{"'" + std::string{field.name} + "' is there twice"};
      }
      fields_.push_back(field);
    } while (take(','));
    expect('}');
  }
  while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\r')) ++at_;
  if (at_ != line_.size()) throw std::invalid_argument{"there is more after the object"};
}

bool JsonLine::take(char c) {
  while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
  if (at_ >= line_.size() || line_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonLine::expect(char c) {
  if (take(c)) return;
  if (at_ >= line_.size()) throw std::invalid_argument{"the line is cut off"};
  throw std::invalid_argument{std::string{"'"} + c + "' is expected at column " + std::to_string(at_ + 1)};
}

std::string_view JsonLine::text() {
  expect('"');
  const std::size_t begin = at_;
  for (; at_ < line_.size(); ++at_) {
    const char c = line_[at_];
    if (c == '"') return line_.substr(begin, at_++ - begin);
    if (c == '\\') return unescaped(begin);
    if (static_cast<unsigned char>(c) < ' ') throw std::invalid_argument{"a control character in a text"};
  }
  throw std::invalid_argument{"the line is cut off"};
}

std::string_view JsonLine::unescaped(std::size_t begin) {
  std::string out{line_.substr(begin, at_ - begin)};
  for (; at_ < line_.size(); ++at_) {
    const char c = line_[at_];
    if (c == '"') {
      ++at_;
      if (unescaped_.size() == unescaped_.capacity()) throw std::invalid_argument{"too many texts"};
      return unescaped_.emplace_back(std::move(out));
    }
    if (c != '\\') {
      out += c;
      continue;
    }
    if (++at_ >= line_.size()) break;
    if (line_[at_] != '"' && line_[at_] != '\\' && line_[at_] != '/')
      throw std::invalid_argument{"of the escapes only \\\", \\\\ and \\/ are read"};
    out += line_[at_];
  }
  throw std::invalid_argument{"the line is cut off"};
}

std::int64_t JsonLine::number() {
  const char* const first = line_.data() + at_;
  std::int64_t value = 0;
  const auto [last, error] = std::from_chars(first, line_.data() + line_.size(), value);
  if (error == std::errc::result_out_of_range) throw std::invalid_argument{"a number beyond 64 bits"};
  if (error != std::errc{}) {
    if (at_ >= line_.size()) throw std::invalid_argument{"the line is cut off"};
    throw std::invalid_argument{"a text, a whole number or null is expected at column " +
                                std::to_string(at_ + 1)};
  }
  at_ += static_cast<std::size_t>(last - first);
  return value;
}

}  // namespace fenceguard::proof
