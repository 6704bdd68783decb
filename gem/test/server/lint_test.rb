# frozen_string_literal: true

require "rack"
require "uri"

require_relative "../serving"

# A complaint of Rack's own checker about a request or a response would cause a 500 here.
class LintTest < Minitest::Test
  include Serving

  APP = lambda do |env|
    request = Rack::Request.new(env)
    case request.path_info
    when "/form" then [200, { "content-type" => "text/plain" }, [request.params.to_a.inspect]]
    when "/each" then [200, { "content-type" => "text/plain" }, ["a", "b"].each]
    when "/none" then [204, {}, []]
    else Rack::Files.new(__dir__).call(env)
    end
  end

  def setup
    serve(Rack::Lint.new(APP))
  end

  def test_a_form_is_read
    form = "Content-Type: application/x-www-form-urlencoded\r\n"
    response = get("/form?q=1", form, method: "POST", body: "a=b+c")
    assert_equal '[["q", "1"], ["a", "b c"]]', response.body
  end

  def test_every_path_of_the_rack_example_passes
    example = File.expand_path("../../../examples/rack_hello", __dir__)
    folder = "#{example}/tmp"
    app = Array(Rack::Builder.parse_file("#{example}/config.ru")).first
    serve(Rack::Lint.new(app), sendfile: [[folder, folder]])
    client = connect
    %w[/ /cpu /sleep].each { |path| assert_equal 121, client.request(path).body.bytesize, path }
    %w[/file /sendfile].each do |path|
      assert_equal 9_000_000, client.request(path).body.bytesize, path
      assert_equal 200, client.request(path, method: "HEAD").status, path
    end
    assert_equal 404, client.request("/nothing").status
    assert_equal 121, client.request("/", method: "POST", body: "unread").body.bytesize
  end

  def test_answers_pass
    client = connect
    assert_equal "ab", client.request("/each").body
    assert_equal 204, client.request("/none").status
    assert_equal File.read(__FILE__), client.request("/lint_test.rb").body
    assert_equal "# frozen", client.request("/lint_test.rb", "Range: bytes=0-7\r\n").body
    assert_equal 200, client.request("/each", method: "HEAD").status
  end
end
