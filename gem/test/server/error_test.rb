# frozen_string_literal: true

require_relative "../serving"

class ErrorTest < Minitest::Test
  include Serving

  # A body that fails after some pieces.
  class Failing
    attr_reader :closes

    def initialize(*pieces)
      @pieces = pieces
      @closes = 0
    end

    def each(&block)
      @pieces.each(&block)
      raise "in the body"
    end

    def close
      @closes += 1
    end
  end

  def test_an_exception_is_a_500_with_its_backtrace_on_stderr
    serve { raise ArgumentError, "no such road" }
    client = connect
    said = stderr_of { assert_equal 500, client.request("/lost?x").status }
    assert_includes said, "no such road (ArgumentError)"
    assert_includes said, "error_test.rb:"
    assert_includes said, "in GET /lost?x"
    stderr_of { assert_equal 500, client.request.status, "the connection is kept" }
  end

  def test_only_development_shows_the_message
    serve { raise "secret" }
    stderr_of { refute_includes get.body, "secret" }
    serve(environment: "development") { raise "secret" }
    stderr_of { assert_includes get.body, "secret (RuntimeError)" }
  end

  def test_what_is_no_standard_error_is_caught_as_well
    [NotImplementedError, SystemExit, Interrupt, NoMemoryError].each do |error|
      serve { raise error, "odd" }
      stderr_of { assert_equal 500, get.status, error }
    end
    serve { throw :nowhere }
    stderr_of { assert_equal 500, get.status }
  end

  def test_a_body_that_fails_before_anything_is_sent_is_a_500
    # Pieces of a body whose length is told may still wait for the next one.
    { {} => [], { "content-length" => "6" } => ["one"] }.each do |headers, pieces|
      body = Failing.new(*pieces)
      serve { [200, headers, body] }
      said = stderr_of { assert_equal 500, get.status }
      assert_includes said, "in the body (RuntimeError)"
      assert_equal 1, body.closes
    end
  end

  # Short pieces wait for the next one. If the body fails meanwhile, they are not sent, though
  # another thread takes the lead while the application answers for the error.
  def test_pieces_that_waited_when_the_body_failed_are_not_sent
    gate = Queue.new
    handler = lambda do |*|
      gate.pop
      [503, {}, ["later"]]
    end
    serve(threads: 2, lowlevel_error_handler: handler) do |env|
      next [200, {}, ["own"]] if env["PATH_INFO"] == "/"

      [200, { "content-length" => "9" }, Failing.new("private")]
    end
    stderr_of do
      failed = connect.send("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually { gate.num_waiting == 1 }
      5.times { assert_equal "own", get.body }
      gate << true
      response = failed.response
      assert_equal [503, "later"], [response.status, response.body]
    end
  end

  def test_a_body_that_fails_in_the_middle_never_looks_whole
    body = Failing.new(*(["x" * 100_000] * 3))
    serve { [200, {}, body] }
    stderr_of do
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      got = begin
        client.io.read
      rescue Errno::ECONNRESET
        ""
      end
      refute got.end_with?("0\r\n\r\n")
    end
    eventually { body.closes == 1 }
  end

  def test_an_answer_that_is_none_is_a_500
    [nil, [200, {}], ["what", {}, []], [99, {}, []], [200, 5, []], [200, {}, [1]]].each do |answer|
      serve { answer }
      stderr_of { assert_equal 500, get.status, answer.inspect }
    end
  end

  def test_an_interim_status_that_nothing_follows_is_a_500_and_the_connection_stays
    failing = Failing.new("never sent")
    { 100 => [], 102 => failing, 103 => ["early"], 199 => nil, 101 => [] }.each do |status, body|
      serve { |env| env["PATH_INFO"] == "/" ? [status, {}, body] : [200, {}, ["next"]] }
      client = connect
      said = stderr_of { assert_equal 500, client.request.status, status }
      assert_includes said, "#{status} is not a final status, and the application does not take " \
                            "the connection"
      assert_equal "next", client.request("/next").body
    end
    assert_equal 1, failing.closes
  end

  # Returns headers that are not a Hash, and yield these values.
  def headers_that_yield(*values)
    Object.new.tap { |headers| headers.define_singleton_method(:each) { |&to| to.call(*values) } }
  end

  def test_headers_yield_names_and_values_in_either_form_and_nothing_else
    [headers_that_yield("x-a", "1"), headers_that_yield(%w[x-a 1]), [%w[x-a 1]]].each do |headers|
      serve { [200, headers, []] }
      assert_equal "1", get["x-a"]
    end
    [%w[x-a 1], headers_that_yield, headers_that_yield("x-a"), [%w[x-a]]].each do |headers|
      serve { [200, headers, []] }
      said = stderr_of { assert_equal 500, get.status, headers.inspect }
      assert_includes said, "headers must yield pairs of a name and a value"
    end
  end

  def test_a_handler_may_answer_for_errors
    seen = nil
    handler = lambda do |error, env, status|
      seen = [error.message, env["PATH_INFO"], status]
      [503, { "retry-after" => "1" }, ["later"]]
    end
    serve(lowlevel_error_handler: handler) { raise "full" }
    stderr_of do
      response = get("/p")
      assert_equal [503, "later", "1"], [response.status, response.body, response["retry-after"]]
    end
    assert_equal ["full", "/p", 500], seen
  end

  def test_an_exception_whose_message_raises_is_logged
    error = Class.new(StandardError) { def message = raise("no message") }
    serve { raise error }
    stderr = stderr_of { assert_equal 500, get.status }
    assert_match(/#<Class:.*in GET/m, stderr)
  end

  def test_a_handler_that_fails_too_leaves_a_bare_500
    serve(lowlevel_error_handler: ->(*) { raise "again" }) { raise "first" }
    stderr_of do
      response = get
      assert_equal [500, ""], [response.status, response.body]
    end
  end

  def test_killed_threads_end_their_connections_and_no_other_and_are_replaced
    line = "thruway: a thread of the server ended unexpectedly (killed); starting another\n"
    said = stderr_of do
      serve(threads: 3) do |env|
        Thread.current.kill if env["PATH_INFO"] == "/kill"
        [200, {}, ["ok"]]
      end
      6.times do
        assert_predicate connect.send("GET /kill HTTP/1.1\r\nHost: a\r\n\r\n"), :closed?
        assert_equal "ok", get.body
      end
      eventually { $stderr.string.lines.size >= 6 }
    end
    assert_equal line * 6, said
  end

  # A timeout that fires too late, after the response.
  def test_an_exception_that_comes_between_requests_ends_no_server
    [1, 3].each do |threads|
      workers = []
      said = stderr_of do
        serve(threads: threads) do |env|
          workers |= [Thread.current]
          sleep 0.02 if env["PATH_INFO"] == "/slow"
          [200, {}, [Thread.current.name]]
        end
        5.times do |round|
          Array.new(4) { connect.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") }
               .each { |client| assert_equal 200, client.response.status }
          workers.select(&:alive?).each { |thread| thread.raise("late #{round}") }
          eventually { workers.none? { |thread| thread.alive? } }
          assert_match(/\Athruway-\d\z/, get.body)
        end
      end
      assert_includes said, "a thread of the server ended unexpectedly (RuntimeError: late 0)"
    end
  end

  def test_an_exception_from_another_thread_in_a_request_is_a_500
    serve(threads: 2) do |env|
      me = Thread.current
      Thread.new { me.raise("from elsewhere") } if env["PATH_INFO"] == "/stray"
      sleep if env["PATH_INFO"] == "/stray"
      [200, {}, ["ok"]]
    end
    stderr_of { assert_equal 500, get("/stray").status }
    assert_equal "ok", get.body
  end
end
