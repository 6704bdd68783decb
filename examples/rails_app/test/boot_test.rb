# frozen_string_literal: true

require "fileutils"
require "minitest/autorun"
require "net/http"
require "tmpdir"
require "timeout"

# The application from a fresh checkout, booted by one command and asked over the network.
class BootTest < Minitest::Test
  APPLICATION = File.expand_path("..", __dir__)
  BINARY = File.expand_path("../../../target/debug/thruway", __dir__)
  # The line in which Puma or Thruway announces its address.
  LISTENING = %r{(?:Listening|serving .*) on http://127\.0\.0\.1:(\d+)}
  BOOT_SECONDS_MAX = 240

  def self.puma(*options)
    ["puma", "-b", "tcp://127.0.0.1:0", "-t", "2:2", *options, "config.ru"]
  end

  def self.thruway(*options)
    [BINARY, "serve", ".", "-b", "tcp://127.0.0.1:0", "-t", "2", *options]
  end

  def test_production_boots_without_any_preparation
    serve(self.class.thruway("-e", "production", "-w", "2")) do |http|
      assert_match "Halfway house", get(http, "/").body
      assert_match "Few stop on it", get(http, "/stops/3").body
      assert_equal "up\n", get(http, "/up").body
      assert_equal "slept\n", get(http, "/slow?seconds=0.01").body
      assert_equal "computed\n", get(http, "/busy?seconds=0.01").body
      assert_match "border-left", get(http, "/style.css").body
      assert_match "Something broke", get(http, "/broken", 500).body
      assert_match "No such stop", get(http, "/stops/0", 404).body
      assert_match "this page is broken, as it should be", File.read("#{@copy}/log/production.log")
    end
  end

  # Rack::Lint raises an exception for a violation of the specification, and the response is a 500.
  def test_every_page_keeps_rack_s_rules
    command = self.class.thruway("-e", "production", "-w", "2")
    serve(command.map { |word| word == "." ? "lint.ru" : word }) do |http|
      pages = %w[/ /stops/3 /up /slow?seconds=0.01 /busy?seconds=0.01 /style.css /download]
      pages.each { |path| get(http, path) }
      assert_match "No such stop", get(http, "/stops/0", 404).body
      assert_match "Something broke", get(http, "/broken", 500).body
      assert_equal "302", leave_note(http, "by the rules").code
      assert_equal "200", http.head("/").code
    end
  end

  def test_development_boots_too
    serve(self.class.thruway("-e", "development")) do |http|
      assert_match "Halfway house", get(http, "/").body
      assert_match "this page is broken", get(http, "/broken", 500).body
    end
  end

  def test_it_is_no_server_s_own
    serve(self.class.puma("-e", "production", "-w", "2")) do |http|
      assert_match "Halfway house", get(http, "/").body
    end
  end

  def test_a_slow_page_keeps_no_other_waiting
    serve(self.class.thruway("-e", "production", "-w", "1")) do |http|
      order = []
      slow = Thread.new do
        Net::HTTP.get(http.address, "/slow?seconds=3", http.port)
        order << "slow"
      end
      Thread.pass until slow.status == "sleep"
      assert_match "Halfway house", get(http, "/").body
      order << "fast"
      slow.join
      assert_equal %w[fast slow], order
    end
  end

  def test_the_map_is_sent_here_or_named_for_the_server_to_send
    map = File.binread(File.join(APPLICATION, "db/road.svg"))
    serve(self.class.thruway("-e", "production")) do |http|
      assert_equal map, get(http, "/download").body
    end
    with_header = { "SENDFILE_HEADER" => "X-Sendfile" }
    serve(self.class.puma("-e", "production"), with_header) do |http|
      answer = get(http, "/download")
      assert_equal ["#{@copy}/db/road.svg", ""], [answer["x-sendfile"], answer.body]
    end
    serve(self.class.thruway("-e", "production", "--sendfile", "db"), with_header) do |http|
      answer = get(http, "/download")
      assert_equal [nil, map], [answer["x-sendfile"], answer.body]
    end
  end

  def test_a_note_is_left_and_a_note_that_is_too_long_is_not
    serve(self.class.thruway("-e", "production", "-w", "2")) do |http|
      assert_equal "302", leave_note(http, "a quiet place").code
      assert_match "a quiet place", get(http, "/stops/5").body
      refused = leave_note(http, "x" * 141)
      assert_equal "422", refused.code
      assert_match "is too long", refused.body
    end
  end

  private

  # Runs `command` in a copy of the application, and yields a connection to it.
  def serve(command, environment = {}, &block)
    Dir.mktmpdir do |folder|
      @copy = File.join(File.realpath(folder), "rails_app")
      copy_application
      IO.popen(environment, command, chdir: @copy, err: %i[child out]) do |output|
        Net::HTTP.start("127.0.0.1", port(output), &block)
      ensure
        Process.kill(:TERM, output.pid)
        output.read
      end
    end
  end

  # Only what a fresh checkout has.
  def copy_application
    FileUtils.mkdir(@copy)
    kept = Dir.children(APPLICATION) - %w[tmp log]
    FileUtils.cp_r(kept.map { |name| File.join(APPLICATION, name) }, @copy)
    rules = "require 'rack/lint'\nuse Rack::Lint\n"
    File.write("#{@copy}/lint.ru", rules + File.read("#{@copy}/config.ru"))
  end

  def port(output)
    printed = +""
    Timeout.timeout(BOOT_SECONDS_MAX) do
      printed << output.readpartial(4096) until LISTENING.match?(printed)
    end
    printed[LISTENING, 1]
  end

  def get(http, path, code = 200)
    answer = http.get(path)
    assert_equal code.to_s, answer.code, path
    answer
  end

  def leave_note(http, text)
    page = get(http, "/stops/5")
    token = page.body[/name="authenticity_token" value="([^"]+)"/, 1]
    form = URI.encode_www_form("authenticity_token" => token, "note[text]" => text)
    headers = { "cookie" => page["set-cookie"].split(";").first,
                "content-type" => "application/x-www-form-urlencoded" }
    http.post("/stops/5/notes", form, headers)
  end
end
