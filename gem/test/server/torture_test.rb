# frozen_string_literal: true

require "pathname"
require "tempfile"

require_relative "../serving"

# An application that does to the server whatever Ruby permits, while each allocation collects
# garbage and moves objects. Clients know the right responses. `cargo x prove torture` runs longer,
# in each mode.
class TortureTest < Minitest::Test
  include Serving

  CASES = Integer(ENV.fetch("THRUWAY_CASES", "40"))
  # Each allocation collects all garbage, or only young garbage, which takes less time.
  STRESS = ENV["THRUWAY_CASES"] ? true : 1
  SEED = Integer(ENV.fetch("THRUWAY_SEED", "1"))
  CLIENTS = 3
  LARGE = "0123456789" * 20_000

  # Bodies and headers whose `each` is a block.
  class Each
    def initialize(&each)
      @each = each
    end

    def each(&block)
      @each.call(block)
    end
  end

  # Header values that change their name while they are converted to Strings.
  class Value
    def initialize(name)
      @name = name
    end

    def to_s
      @name.replace("")
      10.times { ("s" * 302).dup << "!" }
      @name.replace("x-new")
      "v"
    end
  end

  # An application with a method for each path.
  class Application
    NAMES = %i[kept late thread fiber convertible claimed unclaimed renamed fields file large stream
               echo].freeze

    def initialize(path)
      @path = path
      @kept = Queue.new
    end

    def call(env)
      TortureTest.compact
      public_send(env["PATH_INFO"].delete_prefix("/"), env)
    end

    def kept(_)
      [200, {}, Each.new { |block| [block.call("first"), @kept << block] }]
    end

    # Calls a block of an earlier body, if one is left.
    def late(_)
      block = @kept.pop(true)
      block.call("LATE")
      [200, {}, ["called"]]
    rescue IOError, ThreadError
      [200, {}, ["refused"]]
    end

    def thread(_)
      [200, {}, Each.new { |block| Thread.new { block.call("thread") }.join }]
    end

    def fiber(_)
      [200, {}, Each.new { |block| Enumerator.new { |to| to << block.call("fiber") }.next }]
    end

    def convertible(_)
      body = Each.new { raise "it is an Array" }
      body.define_singleton_method(:to_ary) { %w[con vertible].map(&:dup) }
      [200, {}, body]
    end

    def claimed(_)
      [200, { "transfer-encoding" => "chunked" }, ["3\r\ncla\r", "\n4\r\nimed\r\n0\r\n\r\n"].each]
    end

    def unclaimed(_)
      [200, { "transfer-encoding" => "chunked" }, ["0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nevil"]]
    end

    def renamed(_)
      name = "x-" + ("a" * 300)
      [200, {}.compare_by_identity.tap { |headers| headers[name] = Value.new(name) }, []]
    end

    def fields(_)
      [200, Each.new { |block| [block.call(+"x-a", +"b"), @kept << block] }, []]
    end

    def file(_)
      body = Each.new { raise "it is a file" }
      path = Pathname.new(@path)
      body.define_singleton_method(:to_path) { path }
      [200, {}, body]
    end

    def large(_)
      [200, {}, [LARGE.dup, "end".dup]]
    end

    def stream(_)
      [200, {}, ->(out) { out.write("stream") and out.close }]
    end

    def echo(env)
      [200, { "x-length" => env["CONTENT_LENGTH"] }, [env["rack.input"].read]]
    end
  end

  EXPECTED = {
    kept: [200, "first"], late: [200, "refused"], thread: [200, "thread"], fiber: [200, "fiber"],
    convertible: [200, "convertible"], claimed: [200, "claimed"], renamed: [200, ""],
    fields: [200, ""], file: [200, "file"], large: [200, "#{LARGE}end"], stream: [200, "stream"],
    echo: [200, "echo"],
    unclaimed: [500, "500 Internal Server Error: an application error\n"]
  }.freeze

  def test_each_response_is_right_whatever_the_collector_does
    Tempfile.create("body") do |file|
      file.write("file")
      file.flush
      serve(Application.new(file.path), threads: CLIENTS)
      stderr_of { stressed { ask_all } }
    end
  end

  # Each client sends all of its requests on a single connection.
  def ask_all
    random = Random.new(SEED)
    all = Application::NAMES
    asked = Array.new(CASES) { |at| all[at] || all.sample(random: random) }
    clients = asked.each_slice((CASES / CLIENTS.to_f).ceil).map do |names|
      Thread.new(connect) { |client| names.map { |name| [name, ask(client, name)] } }
    end
    clients.flat_map(&:value).each { |name, response| assert_right(name, response) }
  end

  def ask(client, name)
    return client.request("/#{name}") unless name == :echo

    client.request("/echo", method: "POST", body: "echo")
  end

  def assert_right(name, response)
    assert_equal EXPECTED.fetch(name), [response.status, response.body], name
    names = response.headers.map(&:first)
    assert_empty names - %w[date content-length content-type transfer-encoding x-new x-a x-length]
  end

  def stressed
    compacts = GC.auto_compact if GC.respond_to?(:auto_compact)
    TortureTest.auto_compact(true)
    GC.stress = STRESS
    yield
  ensure
    GC.stress = false
    TortureTest.auto_compact(compacts)
  end

  # Not every system supports compaction.
  def self.compact
    GC.compact if GC.respond_to?(:compact)
  rescue NotImplementedError
    nil
  end

  # Not every system supports compaction.
  def self.auto_compact(is_on)
    GC.auto_compact = is_on if GC.respond_to?(:auto_compact=)
  rescue NotImplementedError
    nil
  end
end

if ENV["THRUWAY_CASES"]
  class TortureInFibersTest < TortureTest
    def mode = { fibers: 8 }
  end

  class TortureInWaitingThreadsTest < TortureTest
    def mode = { waiting_threads: 8 }
  end
end
