#include "guard/cli/demo_messages.hpp"

#include <boost/json.hpp>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

namespace json = boost::json;

std::string party_text(Party party) {
  return std::string(1, letter(party));
}

Party parse_party(std::string_view text) {
  if (text == "A") return Party::a;
  if (text == "B") return Party::b;
  throw InvalidInput("a client is A or B");
}

// Reads a line as an object with read(object); everything that does not fit is InvalidInput.
template <class Read>
auto decode(std::string_view line, const Read& read) {
  try {
    const json::value value = json::parse(json::string_view{line.data(), line.size()});
    return read(value.as_object());
  } catch (const boost::system::system_error&) {
  } catch (const std::invalid_argument&) {
  } catch (const std::out_of_range&) {
  }
  throw InvalidInput("a line between the demonstration and its clients is malformed");
}

std::string text_at(const json::object& object, std::string_view name) {
  const auto& text = object.at(json::string_view{name.data(), name.size()}).as_string();
  return {text.data(), text.size()};
}

std::optional<std::int64_t> number_at(const json::object& object, const char* name) {
  const auto* value = object.if_contains(name);
  if (!value) return std::nullopt;
  return value->to_number<std::int64_t>();
}

std::optional<Token> token_at(const json::object& object, const char* name) {
  if (!object.contains(name)) return std::nullopt;
  const auto token = Token::parse(text_at(object, name));
  if (!token) throw InvalidInput("not a token");
  return token;
}

json::object event_object(const Event& event) {
  json::object object{{"event", to_string(event.step)},
                      {"client", party_text(event.who)},
                      {"began_us", event.began.count()},
                      {"ended_us", event.ended.count()}};
  if (event.token) object["token"] = to_string(*event.token);
  if (event.balance) object["balance"] = *event.balance;
  if (event.based_on) object["based_on"] = *event.based_on;
  if (event.highest) object["highest"] = to_string(*event.highest);
  if (event.status != 0) object["status"] = event.status;
  return object;
}

Event read_event(const json::object& object) {
  const auto step = parse_step(text_at(object, "event"));
  if (!step) throw InvalidInput("unknown event");
  Event event;
  event.step = *step;
  event.who = parse_party(text_at(object, "client"));
  event.began = std::chrono::microseconds{object.at("began_us").to_number<std::int64_t>()};
  event.ended = std::chrono::microseconds{object.at("ended_us").to_number<std::int64_t>()};
  event.token = token_at(object, "token");
  event.balance = number_at(object, "balance");
  event.based_on = number_at(object, "based_on");
  event.highest = token_at(object, "highest");
  event.status = static_cast<unsigned>(number_at(object, "status").value_or(0));
  return event;
}

json::object message_object(const ClientMessage& message) {
  if (const auto* event = std::get_if<Event>(&message)) return event_object(*event);
  if (const auto* failed = std::get_if<Failed>(&message))
    return {{"message", "failed"}, {"reason", failed->reason}};
  return {{"message", std::holds_alternative<AtWork>(message) ? "at_work" : "finished"}};
}

ClientMessage read_message(const json::object& object) {
  if (object.contains("event")) return read_event(object);
  const auto word = text_at(object, "message");
  if (word == "at_work") return AtWork{};
  if (word == "finished") return Finished{};
  if (word == "failed") return Failed{text_at(object, "reason")};
  throw InvalidInput("unknown message");
}

const char* loss_word(Loss loss) {
  switch (loss) {
    case Loss::none:
      return "none";
    case Loss::a:
      return "A";
    case Loss::b:
      return "B";
    case Loss::other:
      break;
  }
  return "other";
}

json::object run_object(const Run& run) {
  json::array events;
  for (const auto& event : run.events) events.push_back(event_object(event));
  json::object object{{"resource", run.resource},
                      {"ttl_ms", run.ttl.count()},
                      {"initial", run.initial},
                      {"add_a", run.add_a},
                      {"add_b", run.add_b},
                      {"expected", run.expected()},
                      {"final", nullptr},
                      {"lost_update", loss_word(loss(run))},
                      {"verdict", balance_sentence(run)},
                      {"as_it_must_be", is_as_it_must_be(run)}};
  if (run.final_balance) object["final"] = *run.final_balance;
  if (const auto pause = pause_of(run, Party::a)) object["pause_us"] = pause->count();
  object["events"] = std::move(events);
  return object;
}

}  // namespace

std::string encode(const ClientTask& task) {
  return json::serialize(json::object{{"client", party_text(task.who)},
                                      {"control", task.control},
                                      {"data", task.data},
                                      {"door", task.door},
                                      {"place", task.place},
                                      {"guarded", task.guarded},
                                      {"resource", task.resource},
                                      {"add", task.add},
                                      {"ttl_ms", task.ttl.count()}});
}

std::string encode(const ClientMessage& message) {
  return json::serialize(message_object(message));
}

ClientTask decode_task(std::string_view line) {
  return decode(line, [](const json::object& object) {
    ClientTask task;
    task.who = parse_party(text_at(object, "client"));
    task.control = text_at(object, "control");
    task.data = text_at(object, "data");
    task.door = text_at(object, "door");
    task.place = text_at(object, "place");
    task.guarded = object.at("guarded").as_bool();
    task.resource = text_at(object, "resource");
    task.add = object.at("add").to_number<std::int64_t>();
    task.ttl = std::chrono::milliseconds{object.at("ttl_ms").to_number<std::int64_t>()};
    return task;
  });
}

ClientMessage decode_message(std::string_view line) {
  return decode(line, read_message);
}

std::string json_report(std::string_view scenario, const Run& round, const Run& through) {
  return json::serialize(json::object{{"scenario", json::string{scenario.data(), scenario.size()}},
                                      {"as_it_must_be", is_as_it_must_be(round) && is_as_it_must_be(through)},
                                      {"round", run_object(round)},
                                      {"through", run_object(through)}});
}

}  // namespace fenceguard::demo
