# frozen_string_literal: true

require_relative "../serving"

# Ruby may keep the block of a body's `each`, and call it at any time, from anywhere.
class KeptBlockTest < Minitest::Test
  include Serving

  CLOSED = "IOError: the block is closed: its method has returned"

  # A body whose `each` is a block of the test's.
  class Body
    def initialize(&each)
      @each = each
    end

    def each(&block)
      @each.call(block)
    end
  end

  # Serves a body at `/` and the results of `use` elsewhere.
  def serve_body(each, threads: 2, headers: {}, &use)
    serve(threads: threads) do |env|
      body = env["PATH_INFO"] == "/" ? Body.new(&each) : [use ? use.call : "use"]
      [200, headers, body]
    end
  end

  def result_of
    yield
    "nothing raised"
  rescue Exception => e # rubocop:disable Lint/RescueException
    "#{e.class}: #{e.message}"
  end

  # Keeps the block, and allocates so that freed memory is reused.
  def keeping(kept, *pieces)
    lambda do |block|
      pieces.each { |piece| block.call(piece) }
      kept << block
    end
  end

  def churn
    Array.new(2_000) { |number| "#{number}" * 10 }
    GC.start
  end

  def test_a_block_that_is_called_in_a_later_request_raises
    kept = []
    serve_body(keeping(kept, "first")) do
      churn
      result_of { kept.last.call("LATE") }
    end
    3.times do
      assert_equal "first", get.body
      3.times { assert_equal CLOSED, get("/use").body }
    end
  end

  def test_a_block_that_is_called_in_each_way_after_its_each_raises
    kept = []
    serve_body(keeping(kept, "first"))
    assert_equal "first", get.body
    define_singleton_method(:kept, &kept.first)
    ways_to_call(kept.first).each do |name, way|
      assert_equal CLOSED, result_of(&way), name
    end
  end

  def ways_to_call(block)
    { call: -> { block.call("x") }, yield: -> { block.yield("x") }, brackets: -> { block["x"] },
      case: -> { block === "x" }, exec: -> { instance_exec("x", &block) },
      each: -> { ["x"].each(&block) }, thread: -> { quiet_thread { block.call("x") }.join },
      fiber: -> { Fiber.new { block.call("x") }.resume }, method: -> { kept("x") },
      next: -> { Enumerator.new { block.call("x") }.next }, dup: -> { block.dup.call("x") },
      curry: -> { block.curry.call("x") }, composed: -> { (block >> block).call("x") } }
  end

  def quiet_thread(&work)
    Thread.new do
      Thread.current.report_on_exception = false
      work.call
    end
  end

  def test_a_block_that_is_called_after_its_each_was_left_early_raises
    kept = []
    leave = { "throw" => ->(_) { throw :out }, "raise" => ->(_) { raise "out" } }
    leave.each_value do |left|
      serve { [200, {}, Body.new { |block| kept << block and left.call(block) }] }
      stderr_of { assert_equal 500, get.status }
      assert_equal(CLOSED, result_of { kept.last.call("LATE") })
    end
  end

  def test_a_block_of_an_earlier_body_does_not_reach_the_body_that_is_sent
    kept = []
    serve do |env|
      each = keeping(kept, "first")
      later = lambda do |block|
        block.call("second")
        block.call(result_of { kept.first.call("LATE") })
      end
      [200, {}, Body.new(&(env["PATH_INFO"] == "/" ? each : later))]
    end
    assert_equal "first", get.body
    assert_equal "second#{CLOSED}", get("/later").body
  end

  def test_other_threads_and_fibers_may_call_the_block_while_each_runs
    each = lambda do |block|
      block.call("own ")
      Thread.new { block.call("thread ") }.join
      Fiber.new { block.call("fiber ") }.resume
      Enumerator.new { |to| to << block.call("enumerator ") }.next
      instance_exec("self", &block)
    end
    [1, 3].each do |threads|
      serve_body(each, threads: threads)
      assert_equal "own thread fiber enumerator self", get.body
    end
  end

  def test_a_thread_that_outlives_each_gets_an_error_and_goes_on
    gate = Queue.new
    said = Queue.new
    each = lambda do |block|
      block.call("first")
      Thread.new do
        gate.pop
        3.times { said << result_of { block.call("LATE") } }
        said << "on"
      end
    end
    serve_body(each) { "other" }
    assert_equal "first", get.body
    gate << true
    assert_equal [CLOSED] * 3 + ["on"], Array.new(4) { said.pop }
    assert_equal "other", get("/other").body
  end

  # A client that is gone ends `each`. A thread or fiber outside of `each` is not unwound.
  def test_a_thread_that_writes_to_a_client_that_is_gone_gets_an_error
    makers = { thread: ->(work) { Thread.new(&work).join },
               fiber: ->(work) { Fiber.new(&work).resume } }
    makers.each do |name, maker|
      said = Queue.new
      each = lambda do |block|
        work = -> { said << result_of { loop { block.call("x" * 100_000) } } }
        maker.call(work)
        said << "each goes on"
      end
      serve_body(each)
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      client.read_head
      client.io.close
      assert_equal "IOError: the block takes nothing more", said.pop, name
      assert_equal "each goes on", said.pop, name
    end
  end

  def test_the_block_lives_through_collections_that_move_objects
    kept = []
    compact = GC.respond_to?(:compact) ? GC.method(:compact) : GC.method(:start)
    each = lambda do |block|
      3.times do |number|
        compact.call
        block.call(number.to_s)
      end
      kept << block
    end
    serve_body(each)
    3.times { assert_equal "012", get.body }
    compact.call
    kept.each { |block| assert_equal(CLOSED, result_of { block.call("LATE") }) }
  end

  def test_another_ractor_cannot_call_the_block
    said = Queue.new
    verbose = $VERBOSE
    each = lambda do |block|
      $VERBOSE = nil
      said << told_by_another_ractor(block)
      block.call("first")
    end
    serve_body(each)
    assert_equal "first", get.body
    told = said.pop
    skip "this Ruby shares no block of an extension" if told == "not supported yet"
    assert_equal "the block is for the main Ractor only", told
  ensure
    $VERBOSE = verbose
  end

  # Returns the message of an error in another Ractor that calls the block, or of Ruby 4.0, which
  # refuses to share the block.
  def told_by_another_ractor(block)
    other = Ractor.new(Ractor.make_shareable(block)) do |shared|
      shared.call("LATE")
    rescue IOError => e
      e.message
    end
    other.respond_to?(:take) ? other.take : other.value
  rescue RuntimeError => e
    e.message
  end

  # Headers that are not a Hash also have an `each`.
  def test_headers_may_keep_their_block
    kept = []
    headers = Body.new do |block|
      name = +"x-a"
      value = +"b"
      block.call(name, value)
      name.replace("x-c")
      value.replace("d")
      block.call([name, value])
      [name, value].each { |text| text.replace("LATE") }
      kept << block
    end
    serve { [200, headers, []] }
    3.times do
      fields = get.headers.select { |name, _| name.start_with?("x-") }
      assert_equal [%w[x-a b], %w[x-c d]], fields
      churn
      late = result_of { kept.last.call("x-e", "f") }
      assert_equal "IOError: headers yielded a field after their each returned", late
    end
  end

  def test_headers_that_yield_no_pairs_are_an_error
    [["a"], [%w[a b c]], %w[a b c], []].each do |pair|
      serve { [200, Body.new { |block| block.call(*pair) }, []] }
      said = stderr_of { assert_equal 500, get.status }
      assert_includes said, "headers must yield pairs of a name and a value (TypeError)"
    end
  end
end
