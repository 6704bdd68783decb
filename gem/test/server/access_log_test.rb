# frozen_string_literal: true

require "json"

require_relative "../commands"

require "thruway/application/access_log"

# A line for each request (`log_requests`).
class AccessLogTest < Minitest::Test
  include Commands

  APPLICATION = <<~'RUBY'
    run lambda { |env|
      raise "no" if env["PATH_INFO"] == "/error"
      [200, { "content-length" => "2" }, ["ok"]]
    }
  RUBY

  # Starts with the words of a file, and returns the lines that the block causes. A line is written
  # after its response, so the next request's line may come first.
  def lines_of(words)
    write("config.ru", APPLICATION)
    out = File.join(@folder, "out.log")
    write("config/puma.rb", "stdout_redirect '#{out}', nil, true\n#{words}")
    @log = File.join(@folder, "log")
    @pids << spawn(BINARY, "serve", @folder, "-p", "0", "-e", "production", out: @log, err: @log)
    eventually { File.file?(out) && File.read(out).include?("serving ") }
    @address = File.read(out)[%r{on (http://\S+)}, 1]
    count = yield
    eventually { File.readlines(out).size == count + 1 }
    File.readlines(out).drop(1)
  end

  def test_a_line_is_as_puma_writes_it
    lines = lines_of("log_requests") do
      get("/a?b=1")
      get("/", "X-Forwarded-For: 192.0.2.1\r\n")
      get("/error")
      3
    end
    time = /\[\d\d\/\w{3}\/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]/
    of = ->(path) { lines.find { |line| line.include?("GET #{path} ") } }
    line = %r{\A127\.0\.0\.1 - - #{time} "GET /a\?b=1 HTTP/1\.1" 200 2 \d\.\d{4}$}
    assert_match(line, of["/a?b=1"])
    assert_match(/\A192\.0\.2\.1 - - /, of["/"])
    assert_match(%r{"GET /error HTTP/1\.1" 500 - }, of["/error"])
  end

  def test_a_line_can_be_json
    trace = "00-00000000000000000000000000000010-0000000000000020-01"
    lines = lines_of("log_requests :json") do
      get("/a?b=1", "traceparent: #{trace}\r\nX-Request-Id: r1\r\nUser-Agent: \"x\\\r\n")
      get("/error")
      2
    end
    first, second = lines.map { |line| JSON.parse(line) }.sort_by { |line| line["path"] }
    assert_equal ["GET", "/a", "b=1", 200, 2, "127.0.0.1", "\"x\\", "r1", trace],
                 first.values_at("method", "path", "query", "status", "bytes", "client", "agent",
                                 "request_id", "traceparent")
    assert_match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/, first["time"])
    assert_kind_of Float, first["ms"]
    assert_equal [500, "RuntimeError"], second.values_at("status", "error")
    refute_includes second, "query"
  end

  def test_a_formatter_has_the_last_word
    lines = lines_of("log_requests\nlog_formatter { |line| \"<\#{line[/GET \\S+/]}>\" }") do
      get("/x")
      1
    end
    assert_equal ["<GET /x>\n"], lines
  end

  def test_what_a_client_sends_begins_no_line
    out = StringIO.new
    log = Thruway::AccessLog.new(->(_) { nil }, out: out)
    finished = []
    env = { "rack.response_finished" => finished, "REQUEST_METHOD" => "GET",
            "REQUEST_URI" => "/\n\"", "SERVER_PROTOCOL" => "HTTP/1.1",
            "HTTP_X_FORWARDED_FOR" => "1 - \xe9\n" }
    log.call(env)
    finished.first.call(env, 200, {}, nil)
    assert_equal 1, out.string.lines.size
    assert_includes out.string, '"GET /\x0a\x22 HTTP/1.1" 200'
    assert out.string.start_with?('1\x20-\x20\xe9\x0a - - ')
  end
end
