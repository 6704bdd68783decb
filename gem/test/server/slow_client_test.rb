# frozen_string_literal: true

require_relative "../serving"

# Clients that do not take their responses: no thread of the application waits for them.
class SlowClientTest < Minitest::Test
  include Serving

  GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
  PIECE = ("0123456789abcdef" * 4096).freeze
  PIECES = 300

  def serve_with(body, **options)
    serve(**options) do |env|
      [200, {}, env["PATH_INFO"] == "/go" ? ["gone"] : body.call]
    end
  end

  def each_body
    Enumerator.new { |to| PIECES.times { to << PIECE } }
  end

  def stream_body
    lambda do |stream|
      PIECES.times { stream.write(PIECE) }
      stream.close
    end
  end

  def assert_serves_others(body)
    server = serve_with(body, threads: 2)
    slow = Array.new(6) { connect.send(GET) }
    eventually { server.engine.requests == 6 }
    Timeout.timeout(PATIENCE_SECONDS) { assert_equal "gone", get("/go").body }
    # The slow clients receive whole bodies in the end.
    slow.each { |client| assert_equal PIECE * PIECES, client.response.body }
  end

  def test_a_body_of_pieces_waits_in_a_file_and_not_in_a_thread
    assert_serves_others(-> { each_body })
  end

  def test_a_streaming_body_waits_in_a_file_and_not_in_a_thread
    assert_serves_others(-> { stream_body })
  end

  def test_a_large_array_waits_in_a_file
    serve_with(-> { [PIECE] * PIECES }, worker_memory_bytes_max: 1 << 20)
    clients = Array.new(4) { connect.send(GET) }
    assert_equal "gone", get("/go").body
    clients.each { |client| assert_equal PIECE * PIECES, client.response.body }
  end

  # Sends an endless body to a client that reads nothing, and records the writer's error.
  def endless(met)
    lambda do |stream|
      Thread.new do
        loop { stream.write(PIECE) }
      rescue SystemCallError, IOError => e
        met << e.class
      end
    end
  end

  def test_beyond_its_file_a_stream_waits_until_its_client_is_given_up
    met = Queue.new
    serve_with(-> { endless(met) }, response_file_bytes_max: 1 << 20, write_seconds: 0.5)
    client = connect.send(GET)
    Timeout.timeout(PATIENCE_SECONDS) { assert_equal Errno::EPIPE, met.pop }
    assert_raises(Errno::ECONNRESET) { client.io.read }
    assert_equal "gone", get("/go").body
  end

  def test_beyond_its_file_a_stream_goes_on_when_its_client_does
    serve_with(-> { stream_body }, response_file_bytes_max: 1 << 20)
    assert_equal PIECE * PIECES, get.body
  end

  def test_without_files_a_stream_waits_beyond_its_memory
    serve_with(-> { stream_body }, response_file_bytes_max: 0, response_memory_bytes_max: 1 << 20)
    assert_equal PIECE * PIECES, get.body
  end

  def test_a_disk_that_takes_nothing_ends_the_response_and_nothing_else
    folder = ENV.fetch("TMPDIR", nil)
    ENV["TMPDIR"] = "/nowhere"
    met = Queue.new
    serve_with(-> { endless(met) })
    said = stderr_of do
      client = connect.send(GET)
      Timeout.timeout(PATIENCE_SECONDS) { assert_equal Errno::EPIPE, met.pop }
      assert_raises(Errno::ECONNRESET) { client.io.read }
      assert_equal "gone", get("/go").body
      eventually { $stderr.string.include?("cannot store the unsent part of a response") }
    end
    assert_includes said, "No such file or directory"
  ensure
    ENV["TMPDIR"] = folder
  end
end
