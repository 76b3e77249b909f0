#include "server/control/watch/console_page.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <string_view>

#include "guard/error.hpp"

namespace fenceguard {

extern const std::string_view console_html;
extern const std::string_view console_css;
extern const std::string_view picture_css;
extern const std::string_view story_js;
extern const std::string_view console_js;

namespace {

// 'sha256-…', as a policy names a script or style.
std::string source_hash(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned bytes = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &bytes, EVP_sha256(), nullptr) != 1)
    throw Unavailable("the page cannot be served: OpenSSL has no SHA-256");
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> encoded{};
  const int length = EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(bytes));
  return fmt::format("'sha256-{}'", std::string_view{reinterpret_cast<const char*>(encoded.data()),
                                                     static_cast<std::size_t>(length)});
}

void put(std::string& html, std::string_view place, std::string_view text) {
  html.replace(html.find(place), place.size(), text);
}

// The document with its style and script, and what allows these two alone.
ConsolePage make_document() {
  const auto script = std::string{story_js} + std::string{console_js};
  const auto style = std::string{console_css} + std::string{picture_css};
  ConsolePage page{
      std::string{console_html},
      {},
      fmt::format("default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
                  source_hash(script), source_hash(style))};
  put(page.html, "/*style*/", style);
  put(page.html, "/*script*/", script);
  return page;
}

ConsolePage make_page() {
  auto page = make_document();
  put(page.html, "<!--policy-->\n", "");
  put(page.html, "<!--recording-->\n", "");
  page.html_with_tokens = page.html;
  put(page.html_with_tokens, R"(data-tokens="no")", R"(data-tokens="yes")");
  page.policy += "; connect-src 'self'; frame-ancestors 'none'";
  return page;
}

}  // namespace

const ConsolePage& console_page() {
  static const ConsolePage page = make_page();
  return page;
}

std::string recorded_page(std::string_view recording) {
  auto page = make_document();
  put(page.html, "<!--policy-->",
      fmt::format(R"(<meta http-equiv="Content-Security-Policy" content="{}">)", page.policy));
  // Nothing in it ends the element.
  std::string text;
  for (const char c : recording) c == '<' ? text += "\\u003c" : text += c;
  put(page.html, "<!--recording-->",
      fmt::format(R"(<script type="application/json" id="recording">{}</script>)", text));
  return page.html;
}

}  // namespace fenceguard
