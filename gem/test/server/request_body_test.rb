# frozen_string_literal: true

require "tmpdir"

require_relative "../serving"

class RequestBodyTest < Minitest::Test
  include Serving

  def setup
    serve do |env|
      input = env["rack.input"]
      text = input.read
      input.rewind
      [200, { "x-class" => input.class.name, "x-length" => env["CONTENT_LENGTH"].to_s,
              "x-first" => input.gets.to_s.bytesize.to_s }, [text]]
    end
  end

  # Applications ask uploads for these methods, of which Rack requires the first three only.
  def test_the_input_of_a_request_without_a_body_is_an_empty_file
    serve do |env|
      input = env["rack.input"]
      input.set_encoding(Encoding::BINARY).binmode
      answers = [input.read, input.gets, input.each { flunk }.class, input.read(1), input.getc,
                 input.getbyte, input.eof?, input.pos, input.seek(0), input.rewind, input.size,
                 input.string, input.closed?, input.binmode?, input.external_encoding.to_s]
      input.each_line { flunk }
      assert_raises(ArgumentError) { input.read(-1) }
      [200, {}, [answers.inspect]]
    end
    expected = ["", nil, Module, nil, nil, nil, true, 0, 0, 0, 0, "", false, true, "ASCII-8BIT"]
    assert_equal expected.inspect, get.body
  end

  def test_a_small_body_is_in_memory
    response = get("/", method: "POST", body: "hello")
    assert_equal ["hello", "StringIO", "5", "5"],
                 [response.body, *%w[x-class x-length x-first].map { |name| response[name] }]
  end

  def test_a_body_in_chunks_is_whole_and_its_length_known
    client = connect.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.send("3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n")
    response = client.response
    assert_equal %w[hello 5], [response.body, response["x-length"]]
    assert_equal "again", client.request("/", method: "POST", body: "again").body
  end

  def test_a_large_body_is_a_file_and_leaves_no_descriptor
    body = "0123456789" * 30_000
    client = connect
    5.times do
      response = client.request("/", method: "POST", body: body)
      assert_equal ["File", body.bytesize.to_s], [response["x-class"], response["x-length"]]
      assert_equal body, response.body
    end
    eventually { open_spools.empty? }
  end

  # As in Puma, a stream reads its request for as long as it writes its response.
  def test_a_stream_that_goes_on_in_a_thread_reads_a_large_body
    go_on = Queue.new
    serve(threads: 1) do |env|
      next [200, {}, []] if env["REQUEST_METHOD"] == "GET"

      body = lambda do |stream|
        Thread.new do
          go_on.pop
          stream.write(stream.read)
        ensure
          stream.close
        end
      end
      [200, {}, body]
    end
    body = "0123456789" * 30_000
    head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.bytesize}\r\n\r\n"
    client = connect.send(head + body)
    Timeout.timeout(PATIENCE_SECONDS) do
      # The only thread has returned from the call before it responds to another request.
      get
      go_on << true
      assert_equal body, client.response.body
    end
    eventually { open_spools.empty? }
  end

  # The interrupt may come before the application has got the file.
  def test_a_request_that_is_interrupted_early_leaves_no_descriptor
    body = "0123456789" * 30_000
    GC.disable
    interrupt = TracePoint.new(:call) { raise "interrupted" }
    interrupt.enable(target: Thruway::Server.instance_method(:input)) do
      3.times do
        stderr_of { assert_equal 500, get("/", method: "POST", body: body).status }
      end
    end
    eventually { open_spools.empty? }
  ensure
    GC.enable
  end

  def test_uploads_are_spooled_where_responses_are
    Dir.mktmpdir do |folder|
      seen = Queue.new
      serve do |env|
        seen << File.readlink("/proc/self/fd/#{env["rack.input"].fileno}")
        [200, {}, []]
      end
      { folder => folder, nil => "/var/tmp" }.each do |set, used|
        was, ENV["TMPDIR"] = ENV.fetch("TMPDIR", nil), set
        get("/", method: "POST", body: "x" * 300_000)
        assert_equal used, File.dirname(seen.pop)
      ensure
        ENV["TMPDIR"] = was
      end
    end
  end

  def test_no_body_is_empty
    response = get
    assert_equal ["", "Module"], [response.body, response["x-class"]]
  end

  def test_a_client_that_waits_for_the_word_is_told_to_go_on
    client = connect
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert_equal 100, client.read_head.first
    assert_equal "ok", client.send("ok").response.body
  end

  def test_a_body_beyond_the_limit_is_refused
    serve(body_bytes_max: 10) { flunk }
    assert_equal 413, get("/", method: "POST", body: "x" * 11).status
  end

  private

  # Returns the nameless files that this process holds open. A body above the memory limit is such a
  # file.
  def open_spools
    Dir.each_child("/proc/self/fd").filter_map do |descriptor|
      name = File.readlink("/proc/self/fd/#{descriptor}")
      name if name.match?(%r{/#\d+ \(deleted\)\z})
    rescue Errno::ENOENT
      nil
    end
  end
end
