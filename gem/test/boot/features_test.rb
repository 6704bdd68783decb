# frozen_string_literal: true

require "booting"

# Features that do something unusual when they are loaded.
class FeaturesTest < Minitest::Test
  include Booting

  COUNTED = "$loaded << %d\nsleep 0.01\nmodule Feature%d; def self.n = %d; end\n"
  TELL = "puts $LOADED_FEATURES, $LOAD_PATH\n"

  def counted(numbers)
    numbers.to_h { |number| ["f#{number}.rb", format(COUNTED, number, number, number)] }
  end

  def test_gems_that_were_asked_for_a_feature_are_as_before
    assert_same_program(<<~RUBY)
      2.times { begin; require "nowhere/at_all"; rescue LoadError => e; puts e.message; end }
      puts Gem::Specification.stubs.map { |gem| Marshal.dump(gem).inspect }
    RUBY
  end

  # Programs that change the look-up of gems or the disk, and the following look-ups.
  ASKED = {
    "its own method" => <<~RUBY,
      class Gem::BasicSpecification
        private def have_file?(name, _suffixes) = ($asked << name; false)
      end
    RUBY
    "its own method, with the old one" => <<~RUBY,
      class Gem::BasicSpecification
        alias old_have_file have_file?
        private def have_file?(*asked) = ($asked << asked[0]; old_have_file(*asked))
      end
    RUBY
    "a module in front" => <<~RUBY,
      front = Module.new { private def have_file?(name, *) = ($asked << name; super) }
      Gem::BasicSpecification.prepend(front)
    RUBY
    "the disk" => <<~RUBY
      class << File
        prepend(Module.new { def file?(name) = ($asked << name; super) })
      end
    RUBY
  }.freeze

  ASKED.each do |name, change|
    define_method("test_a_program_changes_how_gems_are_asked_#{name.tr(" ", "_")}") do
      said = assert_same_program(<<~RUBY)
        $asked = []
        #{change}
        %w[nowhere/at_all /nowhere/at_all].each do |name|
          require name
        rescue LoadError => e
          puts e.message
        end
        p $asked.size, $asked.uniq.grep(/nowhere/).first(3)
        p Gem::BasicSpecification.private_method_defined?(:have_file?)
        p Gem::BasicSpecification.instance_method(:have_file?).arity
      RUBY
      refute_match(/^0$/, said.out)
    end
  end

  def test_where_a_feature_would_be_loaded_from
    assert_same_program(<<~'RUBY', "part.rb" => "PART = 1\n", "other/part.rb" => "")
      def ask(name)
        found = $LOAD_PATH.resolve_feature_path(name)
        p name, found, found&.last&.encoding, found&.last&.frozen?
      rescue StandardError, LoadError => e
        p e, e.backtrace
      end

      names = ["part", "part.rb", "other/part", "set", "etc", "etc.so", "etc.rb", "nowhere", "nowhere.so", "./lib/part",
               File.expand_path("lib/part"), "/nowhere", "~", "", ".", "..", "lib/../part", "part/", "a\0b",
               :part, nil, 1, Struct.new(:to_path).new("part"), Class.new(String).new("part"), "p\u00e4rt"]
      names.each { |name| ask(name) }
      p require("part")
      names.each { |name| ask(name) }
      $LOAD_PATH.unshift(File.expand_path("lib/other"))
      ask("part")
      p require("part")
      File.delete("lib/other/part.rb")
      ask("part")
      Thread.new { ask("part") }.join
      Dir.mkdir("lib/other/part.rb")
      ask("part")
      Dir.rmdir("lib/other/part.rb")
      File.write("lib/other/part.rb", "")
      ask("part")
      p $LOAD_PATH.method(:resolve_feature_path).arity
      def $LOAD_PATH.resolve_feature_path(name) = [:own, name]
      ask("part")
      puts $LOADED_FEATURES
    RUBY
  end

  def test_eight_threads_require_the_same_feature
    said = assert_same_program(<<~RUBY, **counted([1]))
      $loaded = Queue.new
      results = Array.new(8) { Thread.new { require "f1" } }.map(&:value)
      p results.count(true), results.size, $loaded.size, Feature1.n
      #{TELL}
    RUBY
    assert(said.out.start_with?("1\n8\n1\n1\n"), said.out)
  end

  def test_eight_threads_require_features_in_different_orders
    assert_same_program(<<~RUBY, **counted(1..20))
      $loaded = Queue.new
      orders = Array.new(8) { |seed| (1..20).to_a.shuffle(random: Random.new(seed)) }
      threads = orders.map { |order| Thread.new { order.count { |n| require "f\#{n}" } } }
      p threads.sum(&:value), $loaded.size, (1..20).sum { |n| Object.const_get("Feature\#{n}").n }
      puts $LOADED_FEATURES.sort, $LOAD_PATH
    RUBY
  end

  def test_features_that_require_each_other
    circle = { "a.rb" => "puts :a\nrequire 'b'\nputs :a_again\n",
               "b.rb" => "puts :b\np require('a')" }
    [[], ["-w"]].each do |switches|
      said = assert_same_program("require 'a'\n#{TELL}", switches: switches, **circle)
      assert_equal !switches.empty?, said.err.include?("circular require considered harmful")
    end
  end

  def test_a_feature_that_raises_is_loaded_again
    assert_same_program(<<~RUBY, "bad.rb" => "puts :begun\nraise 'no' unless $now\n")
      2.times { require "bad" rescue p $!, $!.backtrace }
      $now = true
      p require("bad"), require("bad")
      #{TELL}
    RUBY
  end

  def test_a_feature_that_throws_or_exits
    libraries = { "throws.rb" => "throw :out, 7\n", "exits.rb" => "at_exit { p 1 }\nexit 3\n" }
    said = assert_same_program(<<~RUBY, **libraries)
      p catch(:out) { require "throws" }
      #{TELL}
      require "exits"
    RUBY
    assert_equal 3, said.status.exitstatus
  end

  def test_a_thread_that_is_killed_while_it_loads
    assert_same_program(<<~RUBY, "slow.rb" => "$begun << 1\nsleep unless $now\nSLOW = 1\n")
      $begun = Queue.new
      loading = Thread.new { require "slow" }
      $begun.pop
      waiting = Thread.new { require "slow" }
      Thread.pass until waiting.stop?
      $now = true
      loading.kill.join
      p waiting.value, SLOW, $begun.size
      #{TELL}
    RUBY
  end

  SYNTAX_ERRORS = [
    "def x\n  1 +\nend\n", "class a; end", "x = = 1", "end", "'never closed", "<<~A\n", "1.times {",
    "break", "return 1 = 2", "\xff\xfe", "# encoding: nonsense\n1", "retry", "yield", "$1 = 2",
    "@1", "def f(a, a) = 1", "__END__", "", "=begin\n", "{", "1\n\0\n2"
  ].freeze

  def test_syntax_errors_are_the_same_bytes
    wrong = SYNTAX_ERRORS.each_with_index.to_h { |text, number| ["wrong#{number}.rb", text.b] }
    said = assert_same_program(<<~RUBY, **wrong)
      #{SYNTAX_ERRORS.size}.times do |number|
        [["require", "wrong\#{number}"], ["load", "wrong\#{number}.rb"]].each do |method, name|
          p send(method, name)
        rescue Exception => e
          p e.class, e.message, e.backtrace
        end
      end
      #{TELL}
    RUBY
    assert_operator said.out.scan("SyntaxError").size, :>, 20
  end

  def test_backtraces_labels_and_lines
    said = assert_same_program(<<~RUBY, "deep.rb" => <<~FEATURE)
      require "deep"
      begin
        Deep.new.call { raise "here" }
      rescue => e
        puts e.full_message(highlight: false)
        puts e.backtrace_locations.map { |line| [line.label, line.absolute_path] }
      end
      p Deep.instance_method(:call).source_location, Deep::FILE, Deep::WHERE, Deep::DIR
      p Object.const_source_location(:Deep), Deep::AT.map(&:to_s)
    RUBY
      class Deep
        FILE, DIR, WHERE = __FILE__, __dir__, [__LINE__, __method__, __ENCODING__]
        AT = caller_locations(0)
        def call = [1].each { |n| yield n }
      end
    FEATURE
    assert_includes said.out, "block in <main>"
  end

  def test_magic_comments_data_and_begin_blocks
    assert_same_program(<<~RUBY, "magic.rb" => <<~FEATURE, "latin.rb" => LATIN)
      require "magic"
      require "latin"
      load "magic.rb"
      p Magic.text.frozen?, Magic.text.encoding, Latin.text.encoding, Latin.text.bytes
    RUBY
      # frozen_string_literal: true
      BEGIN { puts :first }
      END { puts :last }
      module Magic; def self.text = "a"; end
      p defined?(DATA), __LINE__
      __END__
      not code
    FEATURE
  end
  LATIN = "# encoding: iso-8859-1\nmodule Latin; def self.text = \"\xe4\"; end\n".b.freeze

  def test_load_in_a_module_and_again
    assert_same_program(<<~RUBY, "part.rb" => "PART = [self.to_s, Module.nesting.size]\np PART\n")
      load "part.rb", true
      p defined?(PART)
      own = Module.new
      load "part.rb", own rescue p $!
      load "part.rb"
      load "part.rb"
      load File.join(__dir__, "lib/part.rb")
      #{TELL}
    RUBY
  end
end
