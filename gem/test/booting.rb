# frozen_string_literal: true

require "fileutils"
require "minitest/autorun"
require "open3"
require "tmpdir"

# Programs that must print the same under plain Ruby and under `thruway run`.
module Booting
  THRUWAY = ENV.fetch("THRUWAY", File.expand_path("../../target/debug/thruway", __dir__))
  # The modes in order. The modes that learn come first.
  MODES = [[], [], ["--digest"], ["--trust-image"]].freeze
  # THRUWAY_PORTABLE=1 runs the same tests in the portable mode.
  PORTABLE = ENV["THRUWAY_PORTABLE"] ? ["--portable"] : []
  RUBY = ENV.fetch("RUBY", "ruby")
  # Variables of the tests' user that would select other behaviour.
  OTHERS = %w[CI THRUWAY_PRELOAD THRUWAY_BOOT THRUWAY_PACK RUBYOPT RUBYLIB].freeze
  # The seed of random tests.
  SEED = Integer(ENV.fetch("THRUWAY_SEED", "1"))
  # The note that Thruway prints if a program is to be frozen before a pack exists.
  NOTHING_FROZEN = /^thruway: note: nothing is frozen, since there is no pack at .*\n/
  # The time after which a program counts as hung.
  PATIENCE_SECONDS = 60

  # The output and the exit status of a program.
  Said = Struct.new(:out, :err, :status) do
    def to_s
      "#{status.exitstatus || status.termsig}\n-- stdout\n#{out}\n-- stderr\n#{err}"
    end
  end

  # Files in a folder of their own, `main.rb` among them and `lib` in the load path; the pack is
  # outside.
  class Program
    attr_reader :folder, :pack

    def initialize(files)
      @around = Dir.mktmpdir("boot")
      @folder = "#{@around}/app"
      @pack = "#{@around}/program.pack"
      FileUtils.mkdir_p("#{folder}/lib")
      files.each { |name, text| write(name, text) }
      age
    end

    def write(name, text)
      path = "#{folder}/#{name}"
      FileUtils.mkdir_p(File.dirname(path))
      File.binwrite(path, text)
    end

    # Waits until files are old enough to be learned.
    def age
      sleep 0.04
    end

    def plain(*switches, below: [])
      ruby(below, switches)
    end

    def run(*options, switches: [], pack: @pack, below: [])
      said = ruby([*below, THRUWAY, "run", *(PORTABLE - options), "--pack", pack, *options, "--"],
                  switches)
      said.err.sub!(NOTHING_FROZEN, "") unless File.exist?(pack)
      said
    end

    # Returns the files of the program that Ruby has compiled, according to `--explain`.
    def compiled(*options)
      own = /: #{Regexp.escape(folder)}\/(.*)$/
      run("--explain", *options).err.lines.filter_map { |line| line[own, 1] }
    end

    def remove
      FileUtils.rm_rf(@around)
    end

    private

    def ruby(below, switches)
      words = ["timeout", PATIENCE_SECONDS.to_s, *below, RUBY, "-Ilib", *switches, "main.rb"]
      mine = OTHERS.to_h { |name| [name, nil] }
      Said.new(*Open3.capture3(mine, *words, chdir: folder, binmode: true))
    end
  end

  # docs/reference/verbs/run.md lists the limits of the portable mode.
  def skip_if_portable(reason) = PORTABLE.any? && skip("the portable mode #{reason}")

  # Returns the number of cases that a random test tries.
  def self.cases(few)
    Integer(ENV.fetch("THRUWAY_CASES", few))
  end

  # A program of those files for the length of a block.
  def program(files)
    program = Program.new(files)
    yield program
  ensure
    program&.remove
  end

  # Asserts that the program prints the same in every mode as in a plain run. Returns the plain run.
  def assert_same(program, switches: [])
    plain = program.plain(*switches)
    MODES.each do |options|
      run = program.run(*options, switches: switches)
      assert_said plain, run, "below thruway run #{options.join(" ")}"
    end
    plain
  end

  # Both say the same bytes; shows from where on they do not.
  def assert_said(plain, run, how)
    return pass if plain.to_s == run.to_s

    lines = [plain, run].map { |said| said.to_s.lines }
    from = lines[0].zip(lines[1]).index { |one, other| one != other } || lines[0].size
    shown = lines.map { |all| all[[from - 3, 0].max, 12].join.scrub }
    flunk "#{how}\n-- plain\n#{shown[0]}\n-- with the pack\n#{shown[1]}"
  end

  # Like `assert_same`, for a program of one file and its libraries.
  def assert_same_program(main, switches: [], **libraries)
    files = libraries.transform_keys { |name| "lib/#{name}" }
    program({ "main.rb" => main, **files }) { |made| assert_same(made, switches: switches) }
  end
end
