# frozen_string_literal: true

require "booting"

# The cases in which the boot lets Ruby load a feature, or does not touch the program at all.
class FallbackTest < Minitest::Test
  include Booting

  FEATURE = "module Part\n  def self.half(n)\n    n.even? ? n / 2 : nil\n  end\nend\n"

  # Each box has its own features, and gets none from the pack.
  def test_boxes_are_left_to_ruby
    skip "this Ruby has no boxes" unless Object.const_defined?("Ruby::Box")

    main = <<~'RUBY'
      require "yaml"
      box = Ruby::Box.new
      box.require("#{__dir__}/lib/x")
      require "x"
      puts X, box::X, YAML.load_file("a.yml"), box.object_id == Ruby::Box.current.object_id
    RUBY
    boxes = ["env", "RUBY_BOX=1"]
    program("main.rb" => main, "lib/x.rb" => "X = __FILE__", "a.yml" => "a: 1\n") do |made|
      plain = made.plain(below: boxes)
      MODES.each { |options| assert_said plain, made.run(*options, below: boxes), options.inspect }
      said = made.run("--explain", below: boxes).err
      assert_match(/^thruway: Ruby boots without the pack: RUBY_BOX=1 is set$/, said)
      refute_path_exists made.pack
    end
  end

  def test_coverage
    said = assert_same_program(<<~RUBY, "part.rb" => FEATURE)
      require "coverage"
      Coverage.start(lines: true, branches: true, methods: true)
      require "part"
      Part.half(4)
      p Coverage.result
    RUBY
    assert_match(/branches(=>|: )\{\[/, said.out)
  end

  def test_coverage_of_what_was_loaded_before_it_began
    assert_same_program(<<~RUBY, "part.rb" => FEATURE, "more.rb" => "Part.half(2)\n")
      require "part"
      require "coverage"
      Coverage.setup(:all)
      require "more"
      Coverage.resume
      load "more.rb"
      p Coverage.peek_result, Coverage.result(stop: true, clear: true)
      load "part.rb"
    RUBY
  end

  def test_compile_options
    feature = "def opts = [1, 'a'.frozen?, 3.then { _1 }]\np opts\n"
    assert_same_program(<<~RUBY, "one.rb" => feature, "two.rb" => feature, "three.rb" => feature)
      require "one"
      before = RubyVM::InstructionSequence.compile_option
      RubyVM::InstructionSequence.compile_option = { frozen_string_literal: true }
      require "two"
      RubyVM::InstructionSequence.compile_option = before
      require "three"
      p RubyVM::InstructionSequence.compile_option == before
    RUBY
  end

  def test_switches_that_change_what_code_is
    feature = "p 'a'.frozen?, __ENCODING__, $DEBUG, $VERBOSE, $;, $/\nputs 'x'.encoding\n"
    [%w[--enable=frozen-string-literal], %w[-w], %w[-W0], %w[-Ku], %w[-Eascii-8bit], %w[--jit],
     %w[-d], %w[-rset -W:no-deprecated], %w[--disable=rubyopt], %w[-Cx/..]].each do |switches|
      program("main.rb" => "require 'part'\n", "lib/part.rb" => feature, "x/y" => "") do |program|
        assert_same(program, switches: switches)
      end
    end
  end

  # Compiled code notes where its Strings were created, and packed code cannot.
  def test_errors_say_where_a_string_was_created
    feature = "# frozen_string_literal: true\n\nTEXT = 'x'\nNAMED = \"\#{1}y\"\n"
    main = "require 'part'\n[TEXT, NAMED].each { |text| p((text << 'z' rescue $!.message)) }\n" \
           "$DEBUG = true\nload 'part.rb'\np((TEXT << 'z' rescue $!.message))\n"
    [[], %w[-d], %w[--debug-frozen-string-literal]].each do |switches|
      said = assert_same_program(main, switches: switches, "part.rb" => feature)
      assert_match(/created at .*part\.rb:3/, said.out)
    end
  end

  # Ruby loads these features after RubyGems, and before the features of RUBYOPT.
  def test_features_of_the_command_line
    main = "puts $LOADED_FEATURES, $LOAD_PATH, defined?(Gem).inspect\n"
    [%w[-rnowhere], %w[-rset -rpart], %w[--disable=gems -rset -rpart], %w[--disable=gems -rnowhere],
     %w[--disable=did_you_mean -rpart]].each do |switches|
      assert_same_program(main, switches: switches, "part.rb" => "puts defined?(Gem).inspect\n")
    end
  end

  def test_source_lines
    feature = "def whole\n  self.class\nend\n"
    assert_same_program(<<~RUBY, "one.rb" => feature, "two.rb" => feature, "three.rb" => feature)
      lines = -> { RubyVM::InstructionSequence.of(method(:whole)).script_lines }
      require "one"
      RubyVM.keep_script_lines = true
      require "two"
      p lines.()
      RubyVM.keep_script_lines = false
      SCRIPT_LINES__ = {}
      require "three"
      p lines.(), SCRIPT_LINES__
    RUBY
  end

  def test_ractors_load_features
    libraries = { "inner.rb" => "INNER = 1\n", "sub/near.rb" => "require_relative 'nearer'\n",
                  "sub/nearer.rb" => "NEARER = 1\n", "bad.rb" => "raise 'bad'\n",
                  "texts.rb" => "require 'json'\nrequire 'yaml'\n" }
    assert_same_program(<<~RUBY, switches: ["-W:no-experimental"], **libraries)
      require "texts"
      Ractor.alias_method(:value, :take) unless Ractor.method_defined?(:value)
      %w[inner inner sub/near bad nowhere \#{__dir__}/lib/inner].each do |name|
        ractor = Ractor.new(name) do |wanted|
          require wanted
        rescue LoadError, StandardError => e
          [e.class, e.message]
        end
        p ractor.value
      end
      p Ractor.new { load "lib/inner.rb" rescue $!.class }.value
      p Ractor.new { JSON.parse('[1]' + ' ' * 2000) rescue $!.class }.value
      puts $LOADED_FEATURES
    RUBY
  end

  def test_warnings_are_given_each_time_they_are_wanted
    libraries = { "unused.rb" => "def a\n  b = 1\n  nil\nend\n", "old.rb" => "x = $; = nil\n" }
    main = "Warning[:deprecated] = ARGV == []\nrequire 'unused'\n$VERBOSE = true\nrequire 'old'\n" \
           "load 'unused.rb'\n$VERBOSE = nil\nload 'unused.rb'\n"
    [[], ["-w"], ["-W0"], []].each do |switches|
      assert_same_program(main, switches: switches, **libraries)
    end
  end

  def test_warnings_go_where_the_program_wants_them
    unused = "def a\n  x = 1\nend\n"
    assert_same_program(<<~RUBY, "warns.rb" => unused, "too.rb" => unused)
      require "stringio"
      $VERBOSE = true
      real, $stderr = $stderr, StringIO.new
      require "warns"
      heard, $stderr = $stderr.string, real
      p heard
      def Warning.warn(text, **more) = puts("heard: \#{text} \#{more}")
      require "too"
    RUBY
  end

  def test_children_are_as_always
    said = assert_same_program(<<~RUBY, "part.rb" => "PART = 1\n")
      require "part"
      puts `env -u RUBYOPT ruby --disable=gems -e 'p $LOADED_FEATURES, ENV["LD_PRELOAD"]' x`
      puts `sh -c 'echo $0 $LD_PRELOAD; exit 3'`, $?.exitstatus
      pid = fork { require "part"; require "set"; puts $LOADED_FEATURES.size; exit!(4) }
      Process.wait(pid)
      p $?.exitstatus
      p Process.clock_gettime(Process::CLOCK_REALTIME) > 0, IO.pipe.map(&:close_on_exec?)
      exec "sh", "-c", "ls /proc/self/fd | wc -l; exit 5"
    RUBY
    assert_equal 5, said.status.exitstatus
  end

  def test_signals_and_statuses
    ["exit 3", "abort 'no'", "Process.kill(:TERM, $$); sleep", "exit!(9)", "raise Interrupt",
     "raise SignalException, 'HUP'", "at_exit { exit 6 }", "$stdout.close"].each do |ending|
      assert_same_program("require 'part'\n#{ending}\n", "part.rb" => "puts 1\n")
    end
  end

  def test_a_pack_that_cannot_be_written_costs_one_note
    program("main.rb" => "require 'part'\np PART\n", "lib/part.rb" => "PART = 1\n") do |program|
      2.times do
        said = program.run(pack: "/proc/no/file/is/made/here.pack")
        assert_equal "1\n", said.out
        assert_equal 1, said.err.lines.size, said.err
        assert_match(/\Athruway: note: cannot make the folder of/, said.err)
      end
    end
  end

  def test_a_pack_that_goes_away_while_it_is_used
    program("main.rb" => <<~RUBY, "lib/a.rb" => "puts :a\n", "lib/b.rb" => "puts :b\n") do |program|
      require "a"
      pack = ENV["THRUWAY_PACK"]
      File.delete(pack) if pack && File.exist?(pack)
      require "b"
      puts $LOADED_FEATURES
    RUBY
      assert_same(program)
    end
  end
end
