# frozen_string_literal: true

require "preloading"

# A fork of a booted application is the command: no difference is seen.
class PreloadCommandTest < Minitest::Test
  include Preloading

  # One application and one template serve all commands, since none of them changes a file.
  def self.application
    @application ||= Preloading::Application.new.tap do |made|
      Minitest.after_run { made.remove }
      # Some of the following commands could not make a template, because they end without a
      # message.
      made.forked("bin/rails", "runner", "0")
    end
  end

  def forked(code, *arguments, **options)
    self.class.application.forked("bin/rails", "runner", code, *arguments, **options)
  end

  def assert_same(code, *arguments, **options)
    words = ["bin/rails", "runner", code, *arguments]
    plain = self.class.application.plain(*words, **options)
    forked = forked(code, *arguments, **options)
    assert_said plain, forked, code
    forked
  end

  def test_a_command_that_is_killed_does_not_keep_the_next_one_from_leaving_a_template
    application do |made|
      2.times { made.preloaded("bin/rails", "runner", "Process.kill(:KILL, $$); sleep") }
      assert_equal "1\n", made.forked("bin/rails", "runner", "puts 1").out
    end
  end

  NAMES = "p ARGV, $0, $PROGRAM_NAME, __FILE__, __dir__, Dir.pwd"

  def test_arguments_and_names
    said = assert_same(NAMES, "a", "b c", "")
    assert_includes said.out, '["a", "b c", ""]'
  end

  # The encodings are those with which Ruby starts, whatever the application sets.
  def test_arguments_of_all_bytes_in_all_encodings
    code = "p ARGV, ARGV.map { |word| [word.encoding, word.frozen?] }, Encoding.default_internal"
    application do |made|
      made.write("config/initializers/e.rb", "Encoding.default_internal = 'UTF-8'\n")
      [["C.UTF-8"], ["C"], ["C.UTF-8", "-EISO-8859-1:UTF-8"]].each do |locale, options|
        env = { "LC_ALL" => locale, "RUBYOPT" => options }
        words = ["bin/rails", "runner", code, "a", "\u00e4", "\xff".b, ""]
        plain = made.plain(*words, env: env)
        2.times { assert_said plain, made.forked(*words, env: env) }
      end
    end
  end

  def test_status_and_signals
    ["exit 7", "exit!(3)", "abort 'why'", "Process.kill(:TERM, $$); sleep",
     "Process.kill(:KILL, $$); sleep"].each { |code| assert_same(code) }
  end

  def test_streams
    assert_same("print $stdin.read.upcase; warn 'said'", input: "given\n")
    assert_same("p [$stdin, $stdout, $stderr].map { |io| [io.tty?, io.sync, io.fileno] }")
  end

  # The report concerns the command, and not a Ruby that the command starts.
  def test_a_ruby_that_it_starts_says_nothing_of_its_boot
    ruby = '["ruby", "--disable=gems", "-e", "p 1"]'
    assert_same("puts IO.popen(#{ruby}, err: %i[child out], &:read)")
  end

  def test_ends_in_order
    assert_same("at_exit { puts 1 }; at_exit { puts 2; exit 4 }; END { puts 3 }")
  end

  # Frames below these show how RubyGems finds the script's first feature, because its gem is
  # active.
  OWN_FRAMES = "grep_v(/kernel_require|zeitwerk.*kernel/)"
  BACKTRACES = "puts caller.#{OWN_FRAMES}; " \
               "def m = raise('x'); m rescue puts $!.backtrace.#{OWN_FRAMES}"

  def test_backtraces = assert_same(BACKTRACES)

  def test_environment
    own = "ENV.to_h.reject { |name, _| name =~ /THRUWAY|RUBYOPT|RUBYLIB|^_$/ }.sort"
    said = assert_same("p #{own}", env: { "GIVEN" => "1", "TERM" => "dumb" })
    assert_includes said.out, '["GIVEN", "1"]'
  end

  def test_descriptors
    IO.pipe do |reader, writer|
      writer.write("passed")
      writer.close
      list = "Dir.children('/proc/self/fd').map(&:to_i).sort.reject { |n| n > 20 }.size"
      said = assert_same("puts #{list}; puts File.stat('/proc/self/fd/17').pipe?", 17 => reader)
      assert_includes said.out, "true"
      # The plain run has not read the pipe.
      assert_equal "passed", forked("print IO.for_fd(17).read", 17 => reader).out
    end
  end

  HANDLERS = "p trap(:CHLD, 'DEFAULT'), trap(:INT, 'DEFAULT'), trap(:TERM, 'DEFAULT')"
  CHILDREN = [
    "puts `echo 1`; p $?.exitstatus", "Process.wait(fork { exit 3 }); p $?.exitstatus",
    "exec 'echo', 'x'", "p system('exit 2'), $?.exitstatus",
    "p Process.wait2(spawn('kill $$')).last.termsig", "trap(:CHLD) { puts 1 }; `true`; sleep 0.1",
    "begin; Process.wait; rescue Errno::ECHILD; puts 'none'; end", HANDLERS
  ].freeze

  def test_children
    CHILDREN.each { |code| assert_same(code) }
  end

  FEATURES = [
    "puts $LOADED_FEATURES.grep_v(/thruway/).sort", "puts Object.constants.grep_v(/Thruway/).sort",
    "puts $LOAD_PATH.reject { |folder| folder.include?('/target/') }"
  ].join("; ")

  def test_features_and_constants = assert_same(FEATURES)

  def test_random_numbers_are_of_each_command_alone
    numbers = Array.new(3) { forked("p rand, Random.rand, [*1..99].sample").out }
    assert_equal 3, numbers.uniq.size
  end

  # A boot may keep a generator of its own: seeded by Ruby, or by the program.
  def test_generators_of_the_application_are_of_each_command_alone
    application do |made|
      made.write("config/initializers/random.rb", "OWN = Random.new\nSEEDED = Random.new(7)\n")
      words = ["bin/rails", "runner", "p OWN.bytes(9); warn SEEDED.rand"]
      said = Array.new(3) { made.forked(*words) }
      assert_equal 3, said.map(&:out).uniq.size
      assert_equal [made.plain(*words).err], said.map(&:err).uniq
    end
  end

  DAEMON = "Process.daemon(true); sleep 0.01 until File.exist?('tmp/go'); " \
           "File.write('tmp/daemon', Process.getsid == Process.pid)"

  # Whether a daemon leads its session, or is forked once more, depends on the Ruby.
  def test_a_daemon_outlives_the_command
    application = self.class.application
    leads = %i[plain forked].map do |how|
      said = application.send(how, "bin/rails", "runner", DAEMON)
      assert_predicate said.status, :success?, said.to_s
      application.write("tmp/go", "")
      application.await_file("tmp/daemon").tap do
        %w[tmp/go tmp/daemon].each { |name| File.delete(application.path(name)) }
      end
    end
    assert_equal(*leads)
  end

  # A binstub as RubyGems writes it, which also prints the number of specifications that it reads.
  BINSTUB = <<~'RUBY'
    #!/usr/bin/env ruby
    require "rubygems"
    require_relative "../config/environment"
    read = 0
    count = TracePoint.new(:call) do |call|
      read += 1 if call.method_id == :load && call.path.end_with?("/specification.rb")
    end
    path = count.enable { Gem.activate_bin_path("rake", "rake", ">= 0.a") }
    puts path, read
  RUBY

  def test_a_binstub_of_rubygems_finds_the_specifications_read
    application do |made|
      made.write("Gemfile", %(source "https://rubygems.org"\ngem "rake"\ngem "minitest"\n))
      made.write("config/application.rb", %(require "bundler/setup"\n))
      made.write("bin/rails", BINSTUB)
      File.chmod(0o755, made.path("bin/rails"))
      # The first run leaves Gemfile.lock.
      plain = Array.new(2) { made.plain("bin/rails") }.last
      assert_predicate plain.status, :success?, plain.to_s
      assert_operator plain.out.lines.last.to_i, :>, 0, plain.to_s
      forked = made.forked("bin/rails")
      assert_equal [plain.out.lines.first, "0\n"], forked.out.lines, forked.to_s
    end
  end

  # Rails' own commands print as much as the small ones. All checks are one command, because a boot
  # takes time.
  def test_a_command_of_rails
    application(RailsApplication) do |made|
      connection = "p ActiveRecord::Base.connection.tables.sort, Rails.env"
      code = [NAMES, BACKTRACES, FEATURES, HANDLERS, connection].join("; ")
      words = ["bin/rails", "runner", code, "a"]
      plain = made.plain(*words)
      assert_predicate plain.status, :success?, plain.to_s
      # Each of them connects anew.
      3.times { assert_said plain, made.forked(*words) }
    end
  end
end
