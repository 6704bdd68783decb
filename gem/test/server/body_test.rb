# frozen_string_literal: true

require "pathname"
require "tempfile"

require_relative "../serving"

class BodyTest < Minitest::Test
  include Serving

  # A body that yields pieces, and counts the calls of `close`.
  class Pieces
    attr_reader :closes

    def initialize(*pieces, &between)
      @pieces = pieces
      @between = between
      @closes = 0
    end

    def each
      @pieces.each do |piece|
        yield piece
        @between&.call(piece)
      end
    end

    def close
      @closes += 1
    end
  end

  # A body in a file.
  class FileBody < Pieces
    def initialize(path, *pieces)
      super(*pieces)
      @path = path
    end

    def to_path
      @path
    end
  end

  def answer(body, headers = {}, status: 200, threads: 2)
    serve(threads: threads) { [status, headers, body] }
    body
  end

  def test_an_array_leaves_with_its_length
    answer(%w[one two], { "content-type" => "text/plain", "X-A" => "b" })
    response = get
    assert_equal [200, "onetwo", "6", "text/plain", "b"],
                 [response.status, response.body, response["content-length"],
                  response["content-type"], response["x-a"]]
  end

  def test_few_pieces_leave_at_once_in_chunks
    body = answer(Pieces.new("one", "", "two"))
    response = get
    assert_equal %w[onetwo chunked], [response.body, response["transfer-encoding"]]
    eventually { body.closes == 1 }
  end

  def test_many_pieces_are_a_stream
    body = answer(Pieces.new(*(["x" * 50_000] * 10)))
    response = get
    assert_equal [500_000, "chunked", nil],
                 [response.body.bytesize, response["transfer-encoding"], response["content-length"]]
    eventually { body.closes == 1 }
  end

  def test_a_claimed_length_is_told_for_a_long_stream
    answer(Pieces.new(*(["x" * 50_000] * 10)), { "content-length" => "500000" })
    response = get
    assert_equal [500_000, nil], [response.body.bytesize, response["transfer-encoding"]]
  end

  def test_a_stream_to_an_old_client_ends_with_the_connection
    answer(Pieces.new(*(["x" * 50_000] * 10)))
    client = connect.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    response = client.response
    assert_equal [500_000, "close"], [response.body.bytesize, response["connection"]]
    assert_predicate client, :closed?
  end

  def test_a_piece_is_sent_while_the_application_waits_for_the_next
    gate = Queue.new
    answer(Pieces.new("one", "two") { gate.pop })
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    _, fields = client.read_head
    assert_equal "chunked", fields.assoc("transfer-encoding").last
    assert_equal "3\r\none\r\n", client.io.read(8)
    2.times { gate << true }
    assert_equal "3\r\ntwo\r\n0\r\n\r\n", client.io.read(13)
  end

  def test_one_thread_alone_does_not_keep_pieces_back
    gate = Queue.new
    answer(Pieces.new("one", "two") { gate.pop }, threads: 1)
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.read_head
    assert_equal "3\r\none\r\n", client.io.read(8)
    2.times { gate << true }
    assert_equal "3\r\ntwo\r\n0\r\n\r\n", client.io.read(13)
  end

  def test_head_has_no_body_but_closes_it
    body = answer(Pieces.new("one"), { "content-length" => "3" })
    client = connect
    response = client.request("/", method: "HEAD")
    assert_equal ["3", ""], [response["content-length"], response.body]
    eventually { body.closes == 1 }
    assert_equal "one", client.request.body
  end

  def test_no_content_has_no_body_and_no_length
    body = answer(Pieces.new, status: 204)
    response = get
    assert_equal [204, nil, nil],
                 [response.status, response["content-length"], response["transfer-encoding"]]
    eventually { body.closes == 1 }
  end

  def test_a_file_is_sent_and_its_pieces_are_not_asked_for
    Tempfile.create("body") do |file|
      file.write("f" * 300_000)
      file.flush
      body = answer(FileBody.new(file.path) { flunk }, { "content-type" => "text/plain" })
      response = get
      assert_equal ["f" * 300_000, "300000"], [response.body, response["content-length"]]
      eventually { body.closes == 1 }
    end
  end

  def test_a_path_may_be_whatever_ruby_takes_for_one
    Tempfile.create("body") do |file|
      file.write("file")
      file.flush
      string = Class.new(String)
      named = Struct.new(:to_str).new(file.path)
      [Pathname.new(file.path), string.new(file.path), named, file].each do |path|
        answer(FileBody.new(path) { flunk })
        assert_equal %w[file 4], [get.body, get["content-length"]], path.class
      end
    end
    [nil, 5, "a\0b", Pathname.new("/nowhere")].each do |path|
      answer(FileBody.new(path, "pieces"))
      assert_equal "pieces", get.body, path.inspect
    end
  end

  def test_a_file_that_is_not_what_the_head_claims_is_left_to_the_body
    Tempfile.create("body") do |file|
      file.write("f" * 10)
      file.flush
      answer(FileBody.new(file.path, "12345"), { "content-length" => "5" })
      assert_equal "12345", get.body
    end
    answer(FileBody.new("/nowhere", "pieces"))
    assert_equal "pieces", get.body
    answer(FileBody.new("/dev", "no file"))
    assert_equal "no file", get.body
  end

  def test_header_values_may_be_several_lines_or_an_array
    answer([], { "set-cookie" => "a=1\nb=2", "x-list" => %w[c d], "x-number" => 5 })
    fields = get.headers
    assert_equal %w[a=1 b=2], fields.select { |name, _| name == "set-cookie" }.map(&:last)
    assert_equal %w[c d], fields.select { |name, _| name == "x-list" }.map(&:last)
    assert_includes fields, %w[x-number 5]
  end

  # A header value whose `to_s` changes the header's name.
  class Value
    def initialize(name)
      @name = name
      @others = []
    end

    def to_s
      @name.replace("")
      # Other Strings reuse the memory of the name.
      200.times { @others << ("s" * 1_502).dup << +"!" }
      @name.replace("x-new")
      "v"
    end
  end

  def test_a_name_that_changes_while_its_value_is_made_is_read_once_that_is_done
    makers = { "each" => ->(name, value) { [[name, value]].each },
               "identity" => ->(name, value) { {}.compare_by_identity.tap { _1[name] = value } },
               "list" => ->(name, value) { {}.compare_by_identity.tap { _1[name] = [value] * 2 } } }
    makers.each do |kind, maker|
      name = "x-" + ("a" * 1_500)
      serve { [200, maker.call(name, Value.new(name)), []] }
      names = get.headers.map(&:first).uniq - %w[date content-length]
      assert_includes [["x-new"], ["x-#{"a" * 1_500}"]], names, kind
    end
  end

  def test_empty_lines_of_a_value_are_no_fields
    answer([], { "set-cookie" => "a=1\n", "x-b" => "\nb\n\nc", "x-n" => "\n", "x-e" => "" })
    fields = get.headers.reject { |name, _| %w[date content-length].include?(name) }
    fields = fields.map { |name, value| [name.chomp(": "), value.to_s] }
    assert_equal [%w[set-cookie a=1], %w[x-b b], %w[x-b c], ["x-e", ""]], fields
  end

  def test_a_header_cannot_break_the_head
    answer([], { "location" => "/\r\nset-cookie: evil=1" })
    response = nil
    said = stderr_of { response = get }
    assert_equal [500, nil], [response.status, response["set-cookie"]]
    assert_includes said, "dropped the header \"location\": its name or value holds a control"
  end

  def test_a_large_string_goes_to_a_slow_client_whole_even_if_it_changes
    text = "0123456789" * 1_000_000
    body = [text]
    answer(body)
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.read_head
    text.replace("changed")
    GC.start
    assert_equal "0123456789" * 1_000_000, client.io.read(10_000_000)
  end

  def test_a_streaming_body_writes_by_itself
    body = lambda do |stream|
      stream.write("one")
      stream << "two"
      stream.flush
      stream.close
    end
    answer(body)
    response = get
    assert_equal %w[onetwo chunked], [response.body, response["transfer-encoding"]]
  end

  def test_a_streaming_body_may_go_on_after_it_returned
    gate = Queue.new
    answer(->(stream) { Thread.new { gate.pop && stream.write("late") && stream.close } })
    client = connect
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.read_head
    gate << true
    assert_equal "4\r\nlate\r\n0\r\n\r\n", client.io.read(14)
  end

  def test_a_body_that_is_none_is_an_error
    answer(5)
    said = stderr_of { assert_equal 500, get.status }
    assert_includes said, "a body responds to each or to call (TypeError)"
  end

  def test_a_client_that_goes_away_ends_the_stream_and_closes_the_body
    endless = Pieces.new
    def endless.each
      loop { yield "x" * 100_000 }
    end
    answer(endless)
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.read_head
    client.io.close
    eventually { endless.closes == 1 }
  end

  # A body that already consists of chunks (RFC 9112, 6.1).
  def test_chunks_of_the_application_do_not_reach_a_client_of_http_1_0
    chunks = ["4\r\nsome\r\n", "a;x=y\r\n thing new\r", "\n0\r\n\r\n"]
    bodies = { "/array" => chunks, "/each" => chunks.each,
               "/stream" => ->(out) { chunks.each { |chunk| out.write(chunk) } and out.close } }
    long = "x" * 100_000
    bodies["/long"] = ["186a0\r\n", long, "\r\n0\r\n\r\n"]
    serve do |env|
      [200, { "transfer-encoding" => "chunked" }, bodies[env["PATH_INFO"]]]
    end
    bodies.each_key do |path|
      expected = path == "/long" ? long : "some thing new"
      response = connect.send("GET #{path} HTTP/1.0\r\n\r\n").response
      assert_equal [expected, nil], [response.body, response["transfer-encoding"]], path
      assert_equal expected, get(path).body
    end
  end
end
