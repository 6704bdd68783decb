# frozen_string_literal: true

require "fileutils"
require "json"
require "minitest/autorun"
require "open3"
require "timeout"
require "tmpdir"

# A Rails application whose commands are run by Ruby as it is and as forks of a template, and must
# say the same.
module Preloading
  THRUWAY = ENV.fetch("THRUWAY", File.expand_path("../../target/debug/thruway", __dir__))
  EXAMPLE = File.expand_path("../../examples/rails_app", __dir__)
  # What takes longer hangs.
  PATIENCE_SECONDS = 60
  # Variables of the tests' user, which would choose another way.
  OTHERS = %w[CI THRUWAY_PRELOAD THRUWAY_BOOT THRUWAY_PACK RUBYOPT RUBYLIB RAILS_ENV].freeze

  # What a command said, how it ended, and how it began.
  Said = Struct.new(:out, :err, :status, :how) do
    def to_s = "#{status.exitstatus || status.termsig}\n-- stdout\n#{out}\n-- stderr\n#{err}"
    def forked? = how.start_with?("forked")
  end

  # An application in a folder of its own, with a place of its own for templates.
  class Application
    attr_reader :folder, :environment

    def initialize
      @around = Dir.mktmpdir("preload")
      @folder = "#{@around}/app"
      fill
      Dir.mkdir("#{@around}/run", 0o700)
      @environment = OTHERS.to_h { |name| [name, nil] }.merge("XDG_RUNTIME_DIR" => "#{@around}/run")
    end

    def path(name) = "#{folder}/#{name}"

    def write(name, text)
      FileUtils.mkdir_p(File.dirname(path(name)))
      File.write(path(name), text)
    end

    # Ruby as it is.
    def plain(*words, **options) = run(words, **options)

    # As a fork where that is right.
    def preloaded(*words, **options)
      said = run([THRUWAY, "run", "--preload", "--explain", "--", *words], **options)
      said.how = said.err.scan(/^thruway: preload: (.*)/).flatten.last.to_s
      said.err.gsub!(/^thruway: .*\n/, "")
      said
    end

    # A command that is a fork of a template, which is made if there is none.
    def forked(*words, **options)
      deadline = now + PATIENCE_SECONDS
      loop do
        said = preloaded(*words, **options)
        return said if said.forked?
        raise "no fork: #{said.how}\n#{said}" if now > deadline || said.how.include?("no template:")

        sleep 0.1
      end
    end

    def reports = JSON.parse(thruway("preload", "status", "--json"))

    def templates = reports.select { |report| report["state"] == "waits" }

    # Waits until a template listens, or it is said why there is none; answers with the reason.
    def await_template
      deadline = now + PATIENCE_SECONDS
      until templates.any?
        refusal = Dir["#{@around}/run/thruway/preload/*.refusal"].first
        return File.read(refusal) if refusal
        raise "no template" if now > deadline

        sleep 0.05
      end
    end

    def thruway(*words)
      out, status = Open3.capture2(environment, THRUWAY, *words, chdir: folder)
      raise "#{words}: #{status}" unless status.success?

      out
    end

    def remove
      thruway("preload", "stop", "--all")
      FileUtils.rm_rf(@around)
    end

    private

    def fill
      FileUtils.cp_r(EXAMPLE, folder)
      FileUtils.rm_rf("#{folder}/tmp")
      FileUtils.mkdir_p(["#{folder}/config/initializers", "#{folder}/log"])
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def run(words, env: {}, input: "", **options)
      words = ["timeout", "--foreground", PATIENCE_SECONDS.to_s, *words]
      Said.new(*Open3.capture3(environment.merge(env), *words, stdin_data: input, chdir: folder,
                                                               **options))
    end
  end

  # An application for the length of a block.
  def application
    application = Application.new
    # The first boot makes a database.
    application.plain("bin/rails", "runner", "0")
    yield application
  ensure
    application&.remove
  end

  def assert_said(plain, forked, how = "as a fork")
    return pass if plain.to_s == forked.to_s

    flunk "#{how}\n-- plain\n#{plain}\n-- preloaded\n#{forked}"
  end
end
