# frozen_string_literal: true

require_relative "../serving"

class EnvTest < Minitest::Test
  include Serving

  def setup
    @envs = []
    serve { |env| @envs.push(env) && [200, {}, []] }
  end

  def test_a_request_becomes_its_environment
    get("/a%20b/c?x=1&y", "Content-Type: text/plain\r\nX-Two-Words: v\r\n", body: "1")
    expected = {
      "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/a%20b/c",
      "QUERY_STRING" => "x=1&y", "REQUEST_URI" => "/a%20b/c?x=1&y", "SERVER_NAME" => "test.example",
      "SERVER_PORT" => "81", "SERVER_PROTOCOL" => "HTTP/1.1", "REMOTE_ADDR" => "127.0.0.1",
      "HTTP_HOST" => "test.example:81", "HTTP_X_TWO_WORDS" => "v", "CONTENT_TYPE" => "text/plain",
      "CONTENT_LENGTH" => "1", "rack.url_scheme" => "http", "rack.hijack?" => true,
      "rack.multithread" => true, "rack.multiprocess" => false, "rack.run_once" => false
    }
    expected.each { |key, value| assert_equal value, @envs[0][key], key }
    refute_includes @envs[0], "HTTP_CONTENT_LENGTH"
  end

  def test_fields_that_stand_twice_are_joined
    get("/", "X-A: 1\r\nCookie: a=b\r\nx-a: 2\r\nCookie: c=d\r\n")
    assert_equal ["1, 2", "a=b; c=d"], @envs[0].values_at("HTTP_X_A", "HTTP_COOKIE")
  end

  def test_a_name_with_an_underscore_does_not_pass_for_one_with_a_dash
    get("/", "X_Real_Ip: 1.2.3.4\r\n")
    refute_includes @envs[0], "HTTP_X_REAL_IP"
  end

  def test_what_one_request_changes_is_not_there_for_the_next
    client = connect
    4.times do
      client.request("/p", "X-A: same\r\n")
      @envs.last.each_value { |value| value << "!" if value.is_a?(String) && !value.frozen? }
      @envs.last["added"] = true
    end
    client.request("/p", "X-A: same\r\n")
    client.request("/p", "X-A: other\r\n")
    fifth, sixth = @envs.last(2)
    assert_equal ["same", "test.example:81", "/p"],
                 fifth.values_at("HTTP_X_A", "HTTP_HOST", "PATH_INFO")
    assert_equal "other", sixth["HTTP_X_A"]
    refute_includes fifth, "added"
  end

  def test_a_host_in_the_target_goes_before_the_field
    connect.send("GET http://other/p HTTP/1.1\r\nHost: a\r\n\r\n").response
    assert_equal ["other", "80", "other", "/p"],
                 @envs[0].values_at("SERVER_NAME", "SERVER_PORT", "HTTP_HOST", "PATH_INFO")
  end

  def test_a_proxy_on_this_machine_says_how_the_client_has_asked
    client = connect
    ["https", "HTTPS, http", "http", "gopher", "https"].each do |proto|
      client.request("/", "X-Forwarded-Proto: #{proto}\r\n")
    end
    connect.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n").response
    connect.send("GET / HTTP/1.1\r\nHost: [::1]\r\nX-Forwarded-Proto: https\r\n" \
                 "X-Forwarded-Proto: http\r\n\r\n").response
    expected = [%w[https 81], %w[https 81], %w[http 81], %w[http 81], %w[https 81],
                %w[https 443], %w[https 443]]
    seen = @envs.map { |env| env.values_at("rack.url_scheme", "SERVER_PORT") }
    assert_equal expected, seen
    assert_equal "[::1]", @envs.last["SERVER_NAME"]
    assert_equal "https,http", @envs.last["HTTP_X_FORWARDED_PROTO"].delete(" ")
  end

  def test_the_input_of_a_request_without_a_body_is_binary
    get
    input = @envs[0]["rack.input"]
    assert_equal ["", Encoding::BINARY], [input.read, input.read.encoding]
    assert_nil input.read(1)
    assert_same input.read(0, buffer = +"x"), buffer
  end

  def test_an_old_client_is_told_as_such
    connect.send("GET / HTTP/1.0\r\n\r\n").response
    assert_equal ["HTTP/1.0", "localhost"], @envs[0].values_at("SERVER_PROTOCOL", "SERVER_NAME")
  end

  def test_a_malformed_request_never_reaches_the_application
    assert_equal 400, connect.send("GET / HTTP/1.1\r\n\r\n").response.status
    assert_empty @envs
  end

  def test_environments_survive_the_collector
    client = connect
    GC.stress = true
    5.times { |n| client.request("/#{n}", "X-Stress: #{n % 2}\r\nX-#{n}: y\r\n") }
    GC.stress = false
    GC.verify_compaction_references(double_heap: true, toward: :empty) if compacts?
    5.times { |n| client.request("/#{n}", "X-Stress: #{n % 2}\r\nX-#{n}: y\r\n") }
    stressed = @envs.map { |env| env["HTTP_X_STRESS"] }
    assert_equal %w[0 1 0 1 0] * 2, stressed
  ensure
    GC.stress = false
  end

  def test_a_client_of_ipv4_has_its_own_address
    serve(binds: ["tcp://[::]:0"]) do |env|
      [200, {}, [env["REMOTE_ADDR"]]]
    end
    assert_equal "127.0.0.1", get.body
  end

  private

  def compacts?
    GC.respond_to?(:verify_compaction_references) && RUBY_VERSION >= "3.2"
  end
end
