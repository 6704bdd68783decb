# frozen_string_literal: true

require "minitest/autorun"
require "rack/builder"
require "rack/lint"
require "rack/mock"
require "tmpdir"

# Every path behind Rack::Lint, which raises where an answer breaks Rack's rules.
class HelloTest < Minitest::Test
  CONFIG = File.expand_path("../config.ru", __dir__)

  def app
    @app ||= Array(Rack::Builder.parse_file(CONFIG)).first
  end

  def get(path)
    Rack::MockRequest.new(Rack::Lint.new(app)).get(path)
  end

  def test_the_text_has_121_bytes
    assert_equal 121, get("/").body.bytesize
    assert_equal "121", get("/").headers["content-length"]
  end

  def test_a_busy_answer_takes_processor_time
    before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    assert_equal 200, get("/cpu").status
    assert_operator Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before, :>=, 0.005
  end

  def test_a_sleeping_answer_comes
    assert_equal 121, get("/sleep").body.bytesize
  end

  def test_the_file_can_be_read_and_has_a_path
    assert_equal 9_000_000, get("/file").body.bytesize
    body = app.call(Rack::MockRequest.env_for("/file")).last
    assert_equal 9_000_000, File.size(body.to_path)
  end

  def test_the_sendfile_header_names_the_file
    answer = get("/sendfile")
    assert_equal 9_000_000, File.size(answer.headers["x-sendfile"])
    assert_empty answer.body
  end

  def test_nothing_else_is_there
    assert_equal 404, get("/nothing").status
  end
end
