#include "tests/proof/checker/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <unordered_set>

#include "tests/proof/checker/json_line.hpp"

namespace fenceguard::proof {
namespace {

constexpr const char* kinds[] = {"advance", "write", "read", "revoke", "floor"};
constexpr const char* answers[] = {"admitted", "duplicate",   "stale",       "conflict",
                                   "refused",  "implausible", "unavailable", "unknown"};

using Field = JsonLine::Field;

[[noreturn]] void reject(const Field& field, const char* what) {
  throw std::invalid_argument{fmt::format("'{}' {}", field.name, what)};
}

std::string_view text_in(const Field& field) {
  if (field.type != Field::Type::text) reject(field, "is a text");
  return field.text;
}

// A decimal text: tokens and sequences exceed what readers of JSON numbers keep.
std::int64_t decimal_in(const Field& field, std::int64_t lowest) {
  constexpr auto expected = "is a number as a text, up to \"9223372036854775807\"";
  const std::string_view text = text_in(field);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  if (!is_whole || value < lowest || (text.size() > 1 && text.front() == '0') || text.front() == '-')
    reject(field, expected);
  return value;
}

std::int64_t moment_in(const Field& field) {
  if (field.type != Field::Type::number || field.number < 0) reject(field, "is a number of nanoseconds");
  return field.number;
}

template <class T, std::size_t count>
T word_in(const Field& field, const char* const (&words)[count]) {
  const std::string_view text = text_in(field);
  for (std::size_t i = 0; i < count; ++i) {
    if (text == words[i]) return static_cast<T>(i);
  }
  throw std::invalid_argument{fmt::format("'{}' of {} is not known", text, field.name)};
}

// One line, before it is known to which resource it belongs.
struct Line {
  std::string_view resource{};
  bool has_resource = false, is_operation = false, is_applied = false, has_process = false;
  bool has_call = false, has_answer = false, has_token = false, has_holder = false, has_value = false;
  std::int64_t bound = 0;
  Operation operation{};
};

class Reader {
 public:
  explicit Reader(ReadLimits limits) : limits_{limits} {}

  History read(std::istream& in) {
    std::string text;
    while (next(in, text)) {
      if (text.empty()) continue;
      try {
        json_.parse(text);
        add(parse());
      } catch (const std::invalid_argument& error) {
        throw BadHistory{number_, error.what()};
      }
    }
    put_in_order(history_);
    return std::move(history_);
  }

 private:
  // getline() with a limit: what has no newline may be of any length.
  bool next(std::istream& in, std::string& text) {
    text.clear();
    ++number_;
    if (number_ > limits_.lines_max)
      throw BadHistory{number_,
                       fmt::format("more than {} lines; give them in several files, each of resources "
                                   "of its own",
                                   limits_.lines_max)};
    buffer_.resize(limits_.line_bytes_max + 2);
    in.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto count = static_cast<std::size_t>(in.gcount());
    if (in.fail() && count > 0)
      throw BadHistory{number_, fmt::format("longer than {} bytes", limits_.line_bytes_max)};
    if (in.fail()) return false;
    text.assign(buffer_.data(), in.eof() ? count : count - 1);
    return true;
  }

  Line parse() {
    Line line;
    for (const Field& field : json_.fields()) read_field(field, line);
    return line;
  }

  void read_field(const Field& field, Line& line) {
    Operation& operation = line.operation;
    const std::string_view name = field.name;
    if (name == "resource") {
      line.resource = text_in(field);
      line.has_resource = !line.resource.empty();
    } else if (name == "op") {
      operation.kind = word_in<Kind>(field, kinds);
      line.is_operation = true;
    } else if (name == "applied") {
      if (text_in(field) != "write") reject(field, "is \"write\"");
      line.is_applied = true;
    } else if (name == "bound") {
      line.bound = decimal_in(field, 1);
    } else if (name == "process") {
      if (field.type != Field::Type::number) reject(field, "is a number");
      operation.process = field.number;
      line.has_process = true;
    } else if (name == "token") {
      operation.token = decimal_in(field, 1);
      line.has_token = true;
    } else if (name == "holder") {
      operation.holder = history_.texts.id(text_in(field));
      line.has_holder = true;
    } else if (name == "sequence") {
      operation.sequence = decimal_in(field, 0);
    } else if (name == "value") {
      line.has_value = true;
      if (field.type != Field::Type::null) operation.value = history_.texts.id(text_in(field));
    } else if (name == "called") {
      operation.called = moment_in(field);
      line.has_call = true;
    } else if (name == "returned") {
      operation.returned = moment_in(field);
    } else if (name == "verdict") {
      operation.answer = word_in<Answer>(field, answers);
      line.has_answer = true;
    } else if (name == "highest") {
      operation.highest = decimal_in(field, 0);
    } else {
      reject(field, "is no field of a history");
    }
  }

  void add(Line line) {
    if (line.bound != 0) {
      if (json_.fields().size() != 1) throw std::invalid_argument{"a bound is a line of its own"};
      history_.bound = line.bound;
      return;
    }
    if (line.is_operation == line.is_applied)
      throw std::invalid_argument{"a line has 'op' or 'applied', and no other has a place here"};
    if (!line.has_resource) throw std::invalid_argument{"'resource' is missing"};
    line.operation.line = number_;
    auto& resource = resource_of(std::string{line.resource});
    if (line.is_applied) {
      if (!line.has_token || line.operation.value == 0)
        throw std::invalid_argument{"what was applied has a token and a value"};
      resource.has_log = true;
      resource.log.push_back({line.operation.token, line.operation.value, number_});
    } else {
      check(line);
      resource.operations.push_back(line.operation);
    }
  }

  static void check(const Line& line) {
    const Operation& operation = line.operation;
    const auto require = [](bool is_met, const char* what) {
      if (!is_met) throw std::invalid_argument{what};
    };
    require(line.has_process && line.has_call, "'process' and 'called' are needed");
    const bool has_returned = operation.returned != never;
    require(!line.has_answer || has_returned, "a verdict was told, so 'returned' is needed");
    require(!has_returned || line.has_answer, "'returned' without a verdict");
    require(operation.kind != Kind::write || operation.value != 0, "a write has a value that is not empty");
    const bool has_claim = operation.kind == Kind::write || operation.kind == Kind::advance;
    const bool may_have_claim = has_claim || operation.kind == Kind::read;
    require(line.has_token || (!has_claim && operation.kind != Kind::floor), "'token' is missing");
    require(may_have_claim || operation.kind == Kind::floor || !line.has_token, "a revoke has no token");
    require(operation.sequence < 0 || operation.kind == Kind::write, "only a write has a sequence");
    const bool is_read = operation.kind == Kind::read && operation.answer == Answer::admitted;
    require(!is_read || line.has_value, "what was read is missing: a 'value', null where nothing was there");
    require(operation.kind == Kind::write || is_read || !line.has_value, "nothing was written or read");
    require(operation.answer != Answer::refused || operation.kind == Kind::write,
            "only a write can be refused by the storage");
  }

  ResourceHistory& resource_of(const std::string& name) {
    const auto [found, is_new] = resources_.try_emplace(name, history_.resources.size());
    if (is_new) history_.resources.push_back({name, {}, {}, false});
    return history_.resources[found->second];
  }

  const ReadLimits limits_;
  History history_;
  JsonLine json_;
  std::string buffer_;
  std::int64_t number_ = 0;
  std::unordered_map<std::string, std::size_t> resources_;
};

}  // namespace

const char* name_of(Kind kind) noexcept {
  return kinds[static_cast<int>(kind)];
}
const char* name_of(Answer answer) noexcept {
  return answers[static_cast<int>(answer)];
}

TextId Texts::id(std::string_view text) {
  const auto [found, is_new] = ids_.try_emplace(std::string{text}, static_cast<TextId>(texts_.size()));
  if (is_new) texts_.push_back(&found->first);
  return found->second;
}

History read_history(std::istream& in, ReadLimits limits) {
  return Reader{limits}.read(in);
}

void put_in_order(History& history) {
  std::unordered_map<std::int64_t, const Operation*> last_of;
  std::unordered_set<TextId> written;
  std::vector<const Operation*> all;
  for (auto& resource : history.resources) {
    auto& operations = resource.operations;
    std::ranges::stable_sort(operations, {}, &Operation::called);
    written.clear();
    for (const Operation& operation : operations) {
      all.push_back(&operation);
      if (operation.returned < operation.called)
        throw BadHistory{operation.line, "returned before it was called"};
      if (operation.kind == Kind::write && !written.insert(operation.value).second) {
        throw BadHistory{operation.line, "the value '" + history.texts.text(operation.value) +
                                             "' is written twice, so a read of it says nothing"};
      }
    }
  }
  std::ranges::stable_sort(all, {}, &Operation::called);
  for (const Operation* operation : all) {
    const auto [last, is_first] = last_of.try_emplace(operation->process, operation);
    if (!is_first && last->second->returned > operation->called) {
      throw BadHistory{operation->line,
                       fmt::format("process {} is at another operation, of line {}, that has not returned",
                                   operation->process, last->second->line)};
    }
    last->second = operation;
  }
}

namespace {

void append_text(std::string& out, std::string_view name, std::string_view text) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":\"", name);
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

}  // namespace

std::string line_of(const History& history, const ResourceHistory& resource, const Operation& operation) {
  std::string out = fmt::format("{{\"op\":\"{}\"", name_of(operation.kind));
  append_text(out, "resource", resource.name);
  fmt::format_to(std::back_inserter(out), ",\"process\":{}", operation.process);
  const auto number = [&](const char* name, std::int64_t value) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":\"{}\"", name, value);
  };
  if (operation.token != 0) number("token", operation.token);
  if (operation.token != 0 && operation.kind != Kind::floor)
    append_text(out, "holder", history.texts.text(operation.holder));
  if (operation.sequence >= 0) number("sequence", operation.sequence);
  const bool is_read = operation.kind == Kind::read && operation.answer == Answer::admitted;
  if (operation.value != 0) {
    append_text(out, "value", history.texts.text(operation.value));
  } else if (is_read) {
    out += ",\"value\":null";
  }
  fmt::format_to(std::back_inserter(out), ",\"called\":{}", operation.called);
  if (operation.returned != never) {
    fmt::format_to(std::back_inserter(out), ",\"returned\":{},\"verdict\":\"{}\"", operation.returned,
                   name_of(operation.answer));
    if (operation.highest >= 0) number("highest", operation.highest);
  }
  return out + "}\n";
}

std::string line_of(const History& history, const ResourceHistory& resource, const Applied& applied) {
  std::string out = "{\"applied\":\"write\"";
  append_text(out, "resource", resource.name);
  fmt::format_to(std::back_inserter(out), ",\"token\":\"{}\"", applied.token);
  append_text(out, "value", history.texts.text(applied.value));
  return out + "}\n";
}

std::string text_of(const History& history) {
  std::string out;
  if (history.bound != 0) out += fmt::format("{{\"bound\":\"{}\"}}\n", history.bound);
  for (const auto& resource : history.resources) {
    for (const auto& operation : resource.operations) out += line_of(history, resource, operation);
    for (const auto& applied : resource.log) out += line_of(history, resource, applied);
  }
  return out;
}

}  // namespace fenceguard::proof
