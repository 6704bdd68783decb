# frozen_string_literal: true

require_relative "../serving"

# If an application's content-length differs from its body's length, the response is neither passed
# on as whole nor silently corrected.
class ContentLengthTest < Minitest::Test
  include Serving

  SIZES = [5, 60_000, 70_000, 300_000].freeze

  # The outcome of a response whose content-length is `claimed`: a status, or an error.
  def outcome(claimed, body, threads: 3)
    serve(threads: threads) do |env|
      headers = { "content-length" => claimed.to_s }
      env["PATH_INFO"] == "/go" ? [200, {}, ["gone"]] : [200, headers, body]
    end
    found = nil
    said = stderr_of do
      found = Timeout.timeout(PATIENCE_SECONDS) { read_from(connect, claimed) }
      eventually { $stderr.string.include?("content-length") }
      assert_equal "gone", get("/go").body
    end
    [found, said]
  end

  def read_from(client, claimed)
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    status, fields = client.read_head
    return status unless status == 200

    assert_equal claimed.to_s, fields.assoc("content-length").last
    body = client.io.read(claimed + 1).to_s
    body.bytesize < claimed ? :short : :whole
  rescue Errno::ECONNRESET, EOFError
    :reset
  end

  def pieces(bytes)
    Enumerator.new do |to|
      (bytes / 1000).times { to << ("x" * 1000) }
      to << ("x" * (bytes % 1000))
    end
  end

  def stream(bytes)
    lambda do |stream|
      stream.write("x" * bytes)
    rescue SystemCallError, IOError
      nil
    ensure
      stream.close
    end
  end

  def assert_refused(claimed, body, **options)
    found, said = outcome(claimed, body, **options)
    assert_includes [500, :reset], found, "#{claimed} claimed"
    assert_includes said, "content-length"
    found
  end

  def test_an_array_of_another_length_is_an_error
    SIZES.each do |size|
      [-3, 3].each { |off| assert_equal 500, assert_refused(size + off, ["x" * size]) }
      assert_equal 500, assert_refused(size + 2, ["x" * (size - 1), "y", "z", ""])
    end
    assert_equal 500, assert_refused(7, [])
  end

  def test_pieces_of_another_length_are_an_error_or_break_off
    SIZES.each do |size|
      [-3, 3].each do |off|
        found = assert_refused(size + off, pieces(size))
        assert_equal 500, found if size < 60_000
        assert_refused(size + off, pieces(size), threads: 1)
      end
    end
  end

  def test_a_stream_of_another_length_breaks_off
    SIZES.each do |size|
      [-3, 3].each { |off| assert_equal :reset, assert_refused(size + off, stream(size)) }
    end
  end

  def test_what_comes_after_the_claimed_length_breaks_the_response_off
    body = lambda do |stream|
      stream.write("12345")
      stream.write("6")
    ensure
      stream.close
    end
    found, said = outcome(5, body)
    assert_includes %i[reset whole], found
    assert_includes said, "content-length"
  end

  def test_a_claim_that_is_no_number_is_an_error
    ["five", "-1", "+5", "5 ", "", "5, 6", "99999999999999999999999"].each do |claim|
      serve { [200, { "content-length" => claim }, ["12345"]] }
      said = stderr_of { assert_equal 500, get.status, claim.inspect }
      assert_includes said, "content-length"
    end
    serve { [200, { "content-length" => %w[5 6] }, ["12345"]] }
    said = stderr_of { assert_equal 500, get.status }
    assert_includes said, "content-length"
  end

  def test_a_claim_about_a_body_that_is_not_sent_is_left_alone
    serve { |env| [env["PATH_INFO"] == "/304" ? 304 : 200, { "content-length" => "7" }, []] }
    assert_equal "7", get("/", method: "HEAD")["content-length"]
    assert_equal "7", get("/304")["content-length"]
  end

  def test_a_body_that_is_coded_already_has_no_length_to_compare
    headers = { "content-length" => "99", "transfer-encoding" => "chunked" }
    ["3\r\none\r\n0\r\n\r\n"].then do |body|
      [body, body.each].each do |same|
        serve { [200, headers, same] }
        response = get
        assert_equal ["one", nil], [response.body, response["content-length"]]
      end
    end
  end

  def test_a_true_claim_stands_once
    SIZES.each do |size|
      [["x" * size], pieces(size), stream(size)].each do |body|
        serve { [200, { "Content-Length" => size.to_s }, body] }
        response = get
        assert_equal ["x" * size, size.to_s], [response.body, response["content-length"]]
      end
    end
  end
end
