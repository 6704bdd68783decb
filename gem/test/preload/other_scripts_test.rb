# frozen_string_literal: true

require "preloading"

# If a script is neither Rails' nor a gem's, nothing is loaded before its own statements.
class PreloadOtherScriptsTest < Minitest::Test
  include Preloading

  # Scripts, each with the library that it requires.
  SCRIPTS = {
    "the order at the end" => ["at_exit { puts 1 }", "at_exit { puts 2 }\nrequire 'lib1'"],
    "who requires it" => ["FROM = caller_locations.last.path", "require 'lib1'\np FROM"],
    "what require answers" => ["A = 1", "p require('lib1'), require('lib1')"],
    "a global and a constant" => ["A = [$given, defined?(Given), $VERBOSE]",
                                  "$given = 1\nmodule Given; end\n$VERBOSE = true\n" \
                                  "require 'lib1'\np A"],
    "an argument" => ["p 1", "require 'lib1' if ARGV.empty?\np $LOADED_FEATURES.grep(/lib1/).size"],
    "a beginning" => ["A = $begun", "require 'lib1'\nBEGIN { $begun = 1 }\np A"],
    "a magic comment" => ["A = 'a'.frozen?",
                          "# frozen_string_literal: true\nrequire 'lib1'\np A, ''.frozen?"],
    "its process" => ["A = Process.pid", "require 'lib1'\np A == Process.pid"],
    "a stream" => ["warn 'said'", "$stderr = $stdout\nrequire 'lib1'"],
    "its data" => ["A = defined?(DATA)", "require 'lib1'\np A, DATA.read\n__END__\nx"]
  }.freeze

  def test_a_script_is_the_first_to_act
    application do |made|
      SCRIPTS.each do |name, (library, script)|
        made.write("../lib/lib1.rb", library)
        made.write("script.rb", script)
        words = ["ruby", "-I../lib", "script.rb"]
        [[], ["x"]].each do |more|
          plain = made.plain(*words, *more)
          said = made.forked(*words, *more)
          assert_said plain, said, name
          assert_includes said.how, "loads nothing in advance: its script is neither Rails' nor"
        end
      end
    end
  end

  # An edited binstub is treated like any other script.
  def test_an_edited_binstub
    application do |made|
      made.write("Gemfile", %(source "https://rubygems.org"\ngem "rake"\n))
      text = "require 'rubygems'\nload Gem.bin_path('rake', 'rake')\n"
      [text, "$given = 1\n#{text}"].each_with_index do |code, index|
        made.write("bin/x#{index}", "#!/usr/bin/env ruby\n#{code}")
        File.chmod(0o755, made.path("bin/x#{index}"))
        said = made.forked("bin/x#{index}", "--version")
        assert_equal index.positive?, said.how.include?("nothing in advance"), said.how
      end
    end
  end

  # A system's package may install the executable of a gem in the place of a binstub, as Debian does
  # with RSpec's.
  def test_a_copy_of_a_gems_executable
    application do |made|
      made.write("../gems/said-1.0/lib/said.rb", "module Said; def self.run = p($given); end\n")
      code = "#!/usr/bin/env ruby\nrequire 'said'\nSaid.run\n"
      made.write("../gems/said-1.0/exe/said", code)
      ["", "$given = 1\n"].each do |more|
        made.write("bin/said", code.sub("require", "#{more}require"))
        words = ["ruby", "-I#{made.path("../gems/said-1.0/lib")}", "bin/said"]
        plain = made.plain(*words)
        said = made.forked(*words)
        assert_said plain, said
        assert_equal more != "", said.how.include?("nothing in advance"), said.how
      end
    end
  end

  # RubyGems chooses the gem, and then the application sets up Bundler. In a fork, Bundler would
  # choose.
  def test_a_binstub_of_a_gem_that_the_bundle_lacks
    application do |made|
      made.write("Gemfile", %(source "https://rubygems.org"\n))
      made.write("Rakefile", %(require_relative "config/environment"\ntask(:said) { puts "ran" }\n))
      made.write("config/environment.rb", <<~RUBY)
        ENV["BUNDLE_GEMFILE"] = File.expand_path("../Gemfile", __dir__)
        require "bundler/setup"
      RUBY
      made.write("x.rb", "require 'rubygems'\nload Gem.bin_path('rake', 'rake')\n")
      # The first run writes Gemfile.lock.
      words = %w[ruby x.rb said]
      plain = Array.new(2) { made.plain(*words) }.last
      assert_equal "ran\n", plain.out, plain.to_s
      assert_said plain, made.preloaded(*words), "with no template yet"
      assert_includes made.await_template.to_s, "bundle has another gem of the command, or none"
      assert_said plain, made.preloaded(*words), "with no template"
    end
  end

  # Rails' file of commands runs a command, and has returned when the tests begin.
  def test_a_template_runs_no_command
    application do |made|
      made.write("../gem/rails/commands.rb", <<~RUBY)
        require "acts_with"
        File.write("ran", "x", mode: "a")
        at_exit { require "#{made.path("config/environment")}" }
      RUBY
      made.write("../gem/acts_with.rb", "ACTS = 1\n")
      made.write("bin/rails", "#!/usr/bin/env ruby\nrequire \"rails/commands\"\n")
      words = ["ruby", "-I#{made.path("../gem")}", "bin/rails", "test"]
      2.times { made.forked(*words) }
      runs = made.reports.sum { |report| report["forks"].to_i + report["misses"].to_i }
      assert_equal runs, File.size(made.path("ran"))
    end
  end

  # A script in a pipe can be read only once.
  def test_a_script_that_can_be_read_once
    application do |made|
      File.mkfifo(made.path("pipe"))
      2.times do |number|
        writer = Thread.new { File.write(made.path("pipe"), "p #{number}") }
        said = made.preloaded("ruby", "pipe")
        writer.join
        assert_equal "#{number}\n", said.out
        assert_equal "booted, since pipe can be read once", said.how
      end
      2.times do |number|
        IO.pipe do |reader, writer|
          writer.write("p #{number}")
          writer.close
          said = made.preloaded("ruby", "/dev/fd/17", 17 => reader)
          assert_equal "#{number}\n", said.out
        end
      end
    end
  end

  # Shared memory is a disk as any, and so is what a process's folder leads to.
  def test_files_in_shared_memory_and_through_a_process
    return pass unless File.writable?("/dev/shm")

    application do |made|
      folder = Dir.mktmpdir("preload", "/dev/shm")
      ["#{folder}/said.rb", "/proc/self/cwd/tmp/said.rb"].each do |path|
        file = path.sub("/proc/self/cwd", made.folder)
        made.write("config/initializers/said.rb", "load #{path.dump}")
        [1, 2].each do |number|
          File.write(file, "SAID = #{number}\n")
          words = ["bin/rails", "runner", "p SAID"]
          assert_equal "#{number}\n", made.preloaded(*words).out, path
          made.forked(*words)
        end
      end
    ensure
      FileUtils.rm_rf(folder)
    end
  end
end
