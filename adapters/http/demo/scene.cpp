#include "adapters/http/demo/scene.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "guard/error.hpp"

namespace fenceguard::proxy::demos {
namespace {

using std::chrono::milliseconds;
using Tone = TaleEvent::Tone;

constexpr const char* story = "delayed-packet";
constexpr std::chrono::seconds answer_limit{5};
constexpr milliseconds patience{800};  // of a client that has no guard to tell it more

std::unique_ptr<StageProcess> start_actor(Stage& stage, std::vector<std::string> words) {
  words.insert(words.begin(), {"demo-actor", story});
  return stage.start({.arguments = std::move(words)});
}

std::string word_after(const std::string& line, std::string_view name) {
  const auto at = line.find(name);
  if (at == std::string::npos) throw Unavailable("the guard says: " + line);
  const auto start = at + name.size();
  return line.substr(start, line.find(' ', start) - start);
}

std::optional<Held> held_from(const http::Response& response) {
  if (response.status != 201 && response.status != 200) return std::nullopt;
  boost::system::error_code error;
  const auto body = boost::json::parse(response.body, error);
  if (error) throw Unavailable("the guard's answer cannot be read");
  const auto token = Token::parse(body.at("token").as_string().c_str());
  if (!token) throw Unavailable("the guard's answer has no token");
  return Held{*token, body.at("holder").as_string().c_str()};
}

std::string shown(const Answered& answered) {
  if (answered.status == 0) return "no answer: gives up";
  if (answered.verdict == "stale") return fmt::format("REFUSED as stale: {}", answered.status);
  if (answered.verdict == "unknown") return fmt::format("{}: outcome unknown", answered.status);
  if (!answered.body.empty() && answered.status == 200) return answered.body;
  return std::to_string(answered.status);
}

Tone tone_of(const Answered& answered) {
  if (answered.status == 0 || answered.verdict == "unknown") return Tone::pause;
  return answered.verdict == "stale" ? Tone::good : Tone::plain;
}

}  // namespace

Network::Network(Stage& stage, const std::string& storage)
    : process_{start_actor(stage, {"network", storage})}, url_{"http://" + process_->receive_line()} {}

void Network::hold_next() {
  process_->send_line("hold");
  await("ready");
}

void Network::await_held() {
  await("held");
}

void Network::release() {
  process_->send_line("release");
  await("released");
}

void Network::await(const std::string& word) {
  if (const auto line = process_->receive_line(); line != word)
    throw Unavailable("the network says: " + line);
}

Scene::Scene(Stage& stage) : stage_{stage} {
  start_storage();
  start_guard();
}

void Scene::start_storage() {
  storage_ = start_actor(stage_, {"storage"});
  const auto address = storage_->receive_line();
  storage_url_ = "http://" + address;
  network_ = std::make_unique<Network>(stage_, address);
  const auto opened = http::Client{storage_url_, answer_limit}.send(
      {.method = "PUT", .target = account, .fields = {}, .body = "100"});
  if (opened.status != 204) throw Unavailable("the account could not be opened");
}

void Scene::start_guard() {
  guard_ = stage_.start(
      {.arguments = {"serve", "--storage", network_->url(), "--state",
                     fmt::format("sqlite:{}/state.db", stage_.folder()), "--init", "--settle",
                     fmt::format("{}ms", settle.count()), "--upstream-timeout", "500ms", "--listen",
                     "127.0.0.1:0", "--control", "127.0.0.1:0", "--log-level", "warning"}});
  const auto line = guard_->receive_line();
  data_ = "http://" + word_after(line, "data=");
  control_ = "http://" + word_after(line, "control=");
}

std::string Scene::balance() const {
  const auto response = http::Client{storage_url_, answer_limit}.send(
      {.method = "GET", .target = account, .fields = {}, .body = {}});
  if (response.status != 200)
    throw Unavailable(fmt::format("the storage answered {} for the account", response.status));
  return response.body;
}

Actor::Actor(Scene& scene, std::string lane, const std::string& door, std::string door_lane)
    : scene_{scene},
      lane_{std::move(lane)},
      door_lane_{std::move(door_lane)},
      door_{door, answer_limit},
      control_{scene.control(), answer_limit} {}

std::optional<Held> Actor::take(std::chrono::milliseconds ttl, std::chrono::milliseconds wait) {
  const auto response = ask(ttl, wait);
  auto held = held_from(response);
  note_grant(response, ttl, held);
  return held;
}

std::optional<Held> Actor::ask_again(std::chrono::milliseconds ttl, std::chrono::milliseconds wait) {
  const auto response = ask(ttl, wait);
  auto held = held_from(response);
  if (held) note_grant(response, ttl, held);
  return held;
}

http::Response Actor::ask(std::chrono::milliseconds ttl, std::chrono::milliseconds wait) {
  http::Request request{.method = "POST", .target = "/v1/leases", .fields = {}, .body = {}};
  request.fields.add("Content-Type", "application/json");
  request.body = boost::json::serialize(
      boost::json::object{{"resource", account + 1}, {"ttl_ms", ttl.count()}, {"wait_ms", wait.count()}});
  auto response = control_.send(request);
  status_ = response.status;
  return response;
}

void Actor::note_grant(const http::Response& response, std::chrono::milliseconds ttl,
                       const std::optional<Held>& held) {
  TaleEvent event{
      .who = lane_, .what = fmt::format("takes the lock for {} ms", ttl.count()), .where = "guard"};
  if (held) {
    event.answer = fmt::format("token {}", to_string(held->token));
    event.tone = Tone::token;
    event.token = held->token;
  } else {
    const auto after = response.fields.single("Retry-After");
    event.answer = fmt::format("{}{}", response.status,
                               after ? fmt::format(": not yet, in {} s again", *after) : std::string{});
    event.tone = Tone::pause;
  }
  scene_.stage().note(std::move(event));
}

std::int64_t Actor::read(const std::optional<Held>& claim) {
  const auto answered = send(claim, "GET", {});
  scene_.stage().note({.who = lane_,
                       .what = "reads the balance",
                       .where = door_lane_,
                       .answer = shown(answered),
                       .tone = tone_of(answered),
                       .token = claim ? std::optional{claim->token} : std::nullopt});
  const auto balance = parse_decimal(answered.body);
  if (answered.status != 200 || !balance) throw Unavailable(lane_ + " could not read the balance");
  return *balance;
}

Answered Actor::write(const std::optional<Held>& claim, std::int64_t balance, const std::string& what) {
  auto answered = send(claim, "PUT", std::to_string(balance));
  scene_.stage().note({.who = lane_,
                       .what = claim ? fmt::format("{}, token {}", what, to_string(claim->token)) : what,
                       .where = door_lane_,
                       .answer = shown(answered),
                       .tone = tone_of(answered),
                       .token = claim ? std::optional{claim->token} : std::nullopt});
  return answered;
}

void Actor::note(std::string what, TaleEvent::Tone tone) {
  scene_.stage().note({.who = lane_, .what = std::move(what), .tone = tone});
}

Answered Actor::send(const std::optional<Held>& claim, const std::string& method, const std::string& body) {
  http::Request request{.method = method, .target = account, .fields = {}, .body = body};
  if (claim) {
    request.fields.add("Fencing-Token", to_string(claim->token));
    request.fields.add("Fencing-Holder", claim->holder);
  }
  try {
    auto response = door_.send(request, claim ? milliseconds{answer_limit} : patience);
    return {response.status, std::string{response.fields.single("Fencing-Verdict").value_or("")},
            std::move(response.body)};
  } catch (const OutcomeUnknown&) {
    return {};
  }
}

}  // namespace fenceguard::proxy::demos
