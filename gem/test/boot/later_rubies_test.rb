# frozen_string_literal: true

require "booting"

# The programs use features that Ruby has since 3.3, 3.4 or 4.0, in code that comes from the pack.
class LaterRubiesTest < Minitest::Test
  include Booting

  LATE = "module Late\n  X = 1\nend\n"

  def test_parameters
    assert_same_since "3.4", <<~'RUBY', "part.rb" => <<~'PART'
      require "part"
      p Part.instance_methods(false).sort.to_h { |name| [name, Part.instance_method(name).parameters] }
      p Part::BLOCKS.map { |block| [block.parameters, block.parameters(lambda: true), block.arity] }
      p Part::BINDINGS.map { |binding| binding.local_variables }
      if Binding.method_defined?(:implicit_parameters)
        p Part::BINDINGS.map { |binding| binding.implicit_parameters }
      end
      p Part.new.all(1, 2, k: 3) { 4 }, Part.new.rest(1, 2), Part.new.keywords(a: 1), Part.new.block { 5 }
    RUBY
      class Part
        BLOCKS = [proc { it }, proc { _1 + _2 }, lambda { it }, proc { |a, (b, *c), d = 1, *e, f:, g: 2, **h, &i| a },
                  proc { |a, | a }, proc { |a = 1| a }, proc { |*, **nil| 1 }]
        BINDINGS = [proc { it; binding }, proc { _2; binding }, proc { |x; y| binding }].map { |block| block.call(1) }
        def all(...) = told(...)
        def more(one, ...) = told(one, ...)
        def rest(*) = told(*)
        def keywords(**) = told(**)
        def block(&) = told(&)
        def both(a, b = 1, *, c, d:, e: 2, **, &) = told(a, *, d:, **, &)
        def none(**nil) = nil
        def told(*all, **keys) = [all, keys, block_given? && yield]
      end
    PART
  end

  def test_errors_point_into_packed_code
    [[], %w[--parser=parse.y]].each do |switches|
      assert_same_since "3.4", <<~'RUBY', "part.rb" => <<~PART, switches: switches
        require "part"
        %i[one two three four five six].each do |name|
          Part.new.public_send(name)
        rescue StandardError, NotImplementedError => e
          puts e.full_message(highlight: false), e.backtrace, e.backtrace_locations.map(&:label)
        end
        begin
          Part.new.wants
        rescue ArgumentError => e
          puts e.full_message(highlight: false)
        end
        begin
          Part.new.gives
        rescue ArgumentError => e
          puts e.full_message(highlight: false)
        end
      RUBY
        class Part
          def one = nil.upcase.downcase
          def two
            [1, 2].map { |n| n + nil }
          end
          def three = Missing::Name
          def four = { a: 1 }.fetch(:b)
          def five
            [1].each { |x| x.then { raise NotImplementedError, it.to_s } }
          end
          def six = unknown_method
          def wants(a, b:) = [a, b]
          def gives
            "x"; wants(1, 2)
          end
        end
      PART
    end
  end

  def test_literals_that_will_be_frozen
    part = <<~'PART'
      class Part
        def change = "text" << "more"
        def interpolated = "#{1}text" << "more"
        def symbol = :name.to_s << "more"
        def nested = %w[a b].first << "c"
        def heredoc = <<~END << "more"
          text
        END
      end
    PART
    main = <<~'RUBY'
      require "part"
      3.times do |round|
        Warning[:deprecated] = round.even?
        %i[change interpolated symbol nested heredoc].each do |name|
          p Part.new.public_send(name)
        rescue FrozenError => e
          p e.message, e.receiver
        end
      end
      p Part.instance_method(:change).source_location
    RUBY
    [[], %w[-W:deprecated], %w[-w], %w[--enable=frozen-string-literal],
     %w[--disable=frozen-string-literal],
     %w[-W:deprecated --debug-frozen-string-literal]].each do |switches|
      assert_same_since "3.3", main, "part.rb" => part, switches: switches
    end
  end

  def test_sets_are_of_the_core
    assert_same_since "3.4", <<~'RUBY', "part.rb" => <<~'PART', switches: %w[-W:deprecated]
      p require("set"), require("part"), Part::ALL, Part::ALL.inspect, Part.new([1, 2]).to_a, Part.new([3]).inspect
      p Part::ALL.to_set.equal?(Part::ALL), [1].to_set, Set[1].to_set { 2 } rescue p $!
      p (SortedSet rescue [$!.class, $!.message.lines.first])
      puts $LOADED_FEATURES.grep(/set/)
      require "yaml"
      puts YAML.dump(Set[1, "a"])
      p YAML.unsafe_load(YAML.dump(Set[1, "a"])), Marshal.load(Marshal.dump(Part::ALL))
    RUBY
      class Part < Set
        ALL = Set[1, 2, 3]
        def each(...) = super
      end
    PART
  end

  def test_pathnames
    libraries = { "part.rb" => "PART = __dir__\n", "sub/near.rb" => "NEAR = __FILE__\n" }
    assert_same_since "3.3", <<~'RUBY', **libraries
      p require("pathname")
      lib = Pathname(__dir__) / "lib"
      p require(lib / "part"), require(lib / "part.rb"), load(lib / "sub" / "near.rb"), PART, NEAR
      $LOAD_PATH.unshift(lib / "sub")
      p require(Pathname("near")), $LOAD_PATH.resolve_feature_path("near")
      puts $LOADED_FEATURES.grep(/pathname|lib/)
      p lib.glob("**/*.rb").sort, lib.children.sort, (lib / "part.rb").read
    RUBY
  end

  def test_ractors_use_packed_code
    assert_same_since "3.3", <<~'RUBY', "late.rb" => LATE, "part.rb" => <<~'PART', switches: %w[-W0]
      require "part"
      taken = ->(ractor) { ractor.respond_to?(:value) ? ractor.value : ractor.take }
      p taken.(Ractor.new { Part.twice(4) }), taken.(Ractor.new { Part::LIST })
      p taken.(Ractor.new { Part.new.greet("x") })
      p taken.(Ractor.new { begin; Part::OPEN; rescue => e; [e.class, e.message]; end })
      p taken.(Ractor.new { begin; Late::X; rescue LoadError, StandardError => e; [e.class, e.message]; end })
      p taken.(Ractor.new { begin; require "late"; rescue LoadError, StandardError => e; [e.class, e.message]; end })
      p Part.blocks, Ractor.shareable?(Part::LIST)
      all = 4.times.map { |n| Ractor.new(n) { |number| 200.times.sum { Part.twice(number) } } }
      p all.map(&taken)
      puts $LOADED_FEATURES.grep(/lib/)
    RUBY
      # shareable_constant_value: literal
      autoload :Late, "late"
      class Part
        LIST = ["a", { b: [1, 2..] }]
        # shareable_constant_value: none
        OPEN = ["a"]
        def self.twice(n) = n * 2
        def greet(name) = "hello #{name} #{__method__}"
        def self.blocks
          return :none unless Ractor.respond_to?(:shareable_proc)

          x = 1
          made = Ractor.shareable_proc { x + it }
          lambda = Ractor.shareable_lambda(self: 3) { |y| [self, y] }
          y = 2
          y += 1
          refused = begin
            Ractor.shareable_proc { y }
          rescue Ractor::IsolationError => e
            e.message
          end
          [made.(2), lambda.(4), refused, Ractor.new(made) { it.(5) }.value]
        end
      end
    PART
  end

  def test_the_collector_has_settings_of_its_own
    part = "PART = Array.new(100) { |n| \"text \#{n}\" * 20 }\n"
    more = "MORE = PART.map(&:dup)\n"
    assert_same_since "3.3", <<~'RUBY', "part.rb" => part, "more.rb" => more
      p Process.warmup
      if GC.respond_to?(:config)
        p GC.config, GC.config(rgengc_allow_full_mark: false), GC.config
        require "part"
        20.times { GC.start(full_mark: false); Array.new(1000) { "x" * 50 } }
        p GC.config(rgengc_allow_full_mark: true), (GC.config(unknown: 1) rescue $!.message)
      end
      require "part"
      p Process.warmup, GC.auto_compact, GC.stress
      GC.auto_compact = true
      GC.compact
      require "more"
      GC.verify_compaction_references(expand_heap: true, toward: :empty)
      p PART == MORE, GC.measure_total_time
      p ObjectSpace.each_object(Class).count { |one| one.name.nil? && !one.singleton_class? }
      p GC.stat_heap.keys, GC.stat_heap(0).keys, GC.latest_gc_info.keys
    RUBY
  end

  def test_categories_of_warnings
    part = <<~'PART'
      class Part
        def quiet(a) = a
        def yields = yield
        def missing
          x = 5
          case [1, 2]
          in [a, b] then a
          end
        end
      end
      Part.new.quiet(1) { 2 }
      {a: 1, a: 2}
      if x = 1 then x end
    PART
    main = <<~'RUBY'
      p Warning.respond_to?(:categories) ? Warning.categories : nil
      require "part"
      begin
        Warning[:strict_unused_block] = true
      rescue ArgumentError => e
        p e.class
      end
      Part.new.quiet(3) { 4 }
      load "part.rb"
    RUBY
    [[], %w[-w], %w[-W:strict_unused_block], %w[-W:performance], %w[-W0], []].each do |switches|
      next if switches.first == "-W:strict_unused_block" && RUBY_VERSION < "3.4"

      assert_same_since "3.3", main, "part.rb" => part, switches: switches
    end
  end

  def test_instructions
    assert_same_since "3.4", <<~'RUBY', "part.rb" => <<~'PART'
      require "part"
      methods = Part.instance_methods(false).sort.map { |name| Part.instance_method(name) }
      methods.each { |method| puts RubyVM::InstructionSequence.of(method).disasm }
      p methods.map { |method| Part.new.then { method.bind_call(it) } }, $log
      p (RubyVM::AbstractSyntaxTree.of(methods.first).type rescue [$!.class, $!.message])
      p methods.map(&:source_location)
      p methods.map { |method| RubyVM::InstructionSequence.of(method).trace_points.size }
    RUBY
      BEGIN { $began = true }
      END { puts "at the end" }
      $log = []
      class Part
        def frozen_lists = [[1, 2].include?(2), [1, 2, 3].max, {}.empty?, [3, 1].min, [1].hash == [1].hash]
        def numbers = [2**70, 1r, 2i, 1.5r, 3ri, 0x7fff_ffff_ffff_ffff, -0.0, 1e400, (1..), (..2), ("a".."c")]
        def texts = ["\xff", "é", :"é", "a".b, "\u3042".encode("UTF-16LE"), /é/, /#{1}x/o, ?a, __ENCODING__]
        def cases
          [1, 1.0, :a, "b", nil, 10**20, [1, { k: "v" }]].map do |value|
            case value
            when 1 then :one
            when :a, "b" then :text
            when nil then :nil
            else
              case value
              in [Integer => n, { k: String => s }] if n == 1 then [n, s]
              in Float | Integer => x then x
              end
            end
          end
        end
        def flow
          out = []
          (1..10).each { |n| out << n if (n == 3)..(n == 5) }
          begin
            tries ||= 0
            tries += 1
            raise "x" if tries < 3
          rescue RuntimeError => @error
            retry
          else
            out << :else
          ensure
            out << tries
          end
          while true do break out << :broken end
          catch(:done) { [1].each { throw :done } }
          out << (defined?(@error)) << defined?(super) << defined?(yield) << defined?(String.new) << defined?(it)
        end
        def news = [Object.new.class, String.new("x", capacity: 5), Array.new(2) { it }, Struct.new(:a).new(1).a]
        def scopes
          a = 1
          b = -> { a += 1; -> { a + it } }
          [b.().(1), binding.local_variables, binding.local_variable_get(:a)]
        end
        def began = $began
      end
    PART
  end

  def test_tracing
    part = "class Part\n  def run(n)\n    x = n + 1\n    [x].each { |y| y * 2 }\n  end\nend\n"
    assert_same_since "3.3", <<~'RUBY', "part.rb" => part, "late.rb" => LATE
      require "part"
      seen = []
      trace = TracePoint.new(:line, :call, :return, :b_call, :b_return) do |tp|
        seen << [tp.event, tp.lineno, tp.method_id]
      end
      trace.enable(target: Part.instance_method(:run)) { Part.new.run(1) }
      trace.enable(target: Part.instance_method(:run), target_line: 3) { Part.new.run(2) } rescue p $!
      p seen
      seen.clear
      trace = TracePoint.new(:class, :end, :line) do |tp|
        seen << [tp.event, File.basename(tp.path), tp.lineno]
      end
      trace.enable { require("late") && load("part.rb") }
      p seen
    RUBY
  end

  # JSON warns of a key that comes twice, or raises, each time that it reads the text.
  def test_repeated_keys_and_new_options_of_json
    numbers = (1..600).to_a.join(", ")
    text = "{\"a\": 1, \"a\": 2, \"b\": [#{numbers}], \"c\": {\"d\": \"\\u2028/\"}}\n"
    main = <<~'RUBY'
      require "json"
      text = -> { File.read("a.json") }
      3.times { p JSON.parse(text.()).size }
      p JSON.load_file("a.json", symbolize_names: true), JSON.parse(text.(), freeze: true).frozen?
      [{ allow_duplicate_key: true }, { allow_duplicate_key: false },
       { allow_trailing_comma: true }, { decimal_class: nil }].each do |options|
        p JSON.parse(text.(), **options).keys
      rescue StandardError => e
        p e.class, e.message
      end
      p JSON::Coder.new { |x| x.to_s }.parse(text.()).keys if JSON.const_defined?(:Coder)
    RUBY
    [[], %w[-w], %w[-W0], %w[-W:deprecated]].each do |switches|
      program("main.rb" => main, "a.json" => text) do |made|
        assert_predicate assert_same(made, switches: switches).status, :success?
      end
    end
  end

  def test_requires_while_a_scheduler_runs
    part = "sleep 0\nPART = Fiber.current.blocking?\n"
    assert_same_since "3.3", <<~'RUBY', "part.rb" => part, "other.rb" => "OTHER = 1\n"
      class Scheduler
        def initialize = (@ready, @calls = [], [])
        attr_reader :calls
        def block(*) = (@calls << :block; Fiber.yield)
        def unblock(_, fiber) = @ready << fiber
        def kernel_sleep(*) = (@calls << :sleep; @ready << Fiber.current; Fiber.yield)
        def io_wait(*) = (@calls << :io_wait; true)
        def fiber_interrupt(*) = nil
        def yield(*) = nil
        def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
        def close = run
        def run = (@ready.shift.resume until @ready.empty?)
      end
      scheduler = Scheduler.new
      thread = Thread.new do
        Fiber.set_scheduler(scheduler)
        Fiber.schedule { p require("part"), PART }
        Fiber.schedule { p require("part"), require("other") }
      end
      thread.join
      p scheduler.calls
    RUBY
  end

  def test_loads_into_a_module
    part = "X = 1\ndef hidden = X\nputs hidden\n$self = self\nclass Inner; end\n"
    assert_same_since "3.3", <<~'RUBY', "part.rb" => part
      into = Module.new { set_temporary_name "<within>" }
      p load("part.rb", into), into.constants.sort, (X rescue $!.class), into::Inner, $self.to_s
      p into.const_source_location(:X)
      p load("part.rb", true), $self.singleton_class.ancestors.size
      p ObjectSpace::WeakKeyMap.new.inspect[0, 30], Class.new.singleton_class.attached_object.class
      p (Ruby::VERSION rescue $!.class), (Ruby::Box.enabled? rescue $!.class), (Ruby::Box.new rescue $!.class)
    RUBY
  end

  def test_refinements_and_data
    far = "using Part::Loud\nFAR = 'x'.shout\n"
    assert_same_since "3.3", <<~'RUBY', "far.rb" => far, "part.rb" => <<~'PART'
      require "part"
      require "far"
      using Part::Loud
      p FAR, "y".shout, ["z"].map(&:shout), Part::Point.new(x: 1, y: 2).with(y: 3)
      p Part::Loud.refinements.map(&:target), Part::Point.instance_method(:length).source_location
      case Part::Point.new(3, 4)
      in { x:, y: } then p [x, y]
      end
    RUBY
      module Part
        Point = Data.define(:x, :y) do
          def length = Math.sqrt(x * x + y * y)
        end
        module Helper
          def shout = upcase + "!"
        end
        module Loud
          refine(String) { import_methods Helper }
        end
      end
    PART
  end

  def test_syntax_errors_and_the_place_of_the_end
    libraries = { "bad.rb" => "class A\n  def x(\n    1 +\n  end\nend\n",
                  "also.rb" => "x = [1,\n",
                  "data.rb" => "p __LINE__, DATA rescue p $!.class\n__END__\nrest\n" }
    assert_same_since "3.4", <<~'RUBY', **libraries
      2.times do
        %w[bad also data].each do |name|
          p require(name)
        rescue SyntaxError => e
          puts e.message, e.path, e.detailed_message(highlight: true)
        end
      end
      p DATA.read
      __END__
      own
    RUBY
  end

  private

  # Asserts that a program, which needs that version of Ruby, says the same with the pack, and ends
  # without an error.
  def assert_same_since(version, main, switches: [], **libraries)
    skip "since Ruby #{version}" if RUBY_VERSION < version

    said = assert_same_program(main, switches: switches, **libraries)
    assert_predicate said.status, :success?, said.err
  end
end
