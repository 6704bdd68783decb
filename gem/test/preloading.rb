# frozen_string_literal: true

require "fileutils"
require "installed"
require "json"
require "minitest/autorun"
require "tmpdir"

# Applications whose commands are run by Ruby as it is and as forks of a template, and must say the
# same.
module Preloading
  include Installed

  THRUWAY = ENV.fetch("THRUWAY", File.expand_path("../../target/debug/thruway", __dir__))
  EXAMPLE = File.expand_path("../../examples/rails_app", __dir__)
  # The time after which a command counts as hung.
  PATIENCE_SECONDS = 60
  # After the first hang, others are likely, so later waits are shorter.
  PATIENCE_AFTER_A_FAILURE_SECONDS = 5
  # Variables of the tests' user that would select other behaviour.
  OTHERS = %w[CI THRUWAY_PRELOAD THRUWAY_BOOT THRUWAY_PACK RUBYOPT RUBYLIB RAILS_ENV].freeze

  class << self
    # Waits until the block returns a value, and returns the value. The failure contains `what`.
    def await(what)
      deadline = now + patience
      until (answer = yield)
        give_up(what) if now > deadline
        sleep 0.01
      end
      answer
    end

    # Waits for the end of a child of this process, and returns its status.
    def status_of(process, what)
      watcher = Process.detach(process)
      return watcher.value if watcher.join(patience)

      Process.kill(:KILL, process)
      give_up("the end of #{what}")
    end

    # Whether a process runs. An ended process may stay in the table forever, if its new parent does
    # not collect the status.
    def runs?(process)
      !File.read("/proc/#{process}/stat")[/\) (.)/, 1].match?(/[ZX]/)
    rescue SystemCallError
      false
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def patience = @has_failed ? PATIENCE_AFTER_A_FAILURE_SECONDS : PATIENCE_SECONDS

    def give_up(what)
      waited = patience
      @has_failed = true
      raise "waited #{waited} s in vain for #{what.respond_to?(:call) ? what.call : what}"
    end
  end

  # The output of a command, its exit status, and whether it was preloaded.
  Said = Struct.new(:out, :err, :status, :how) do
    def to_s = "#{status.exitstatus || status.termsig}\n-- stdout\n#{out}\n-- stderr\n#{err}"
    def forked? = how.start_with?("forked")
  end

  # A small program in its own folder, with its own place for templates. The layout is that of a
  # Rails application, without any of Rails' code.
  class Application
    FILES = {
      "bin/rails" => <<~'RUBY',
        #!/usr/bin/env ruby
        ARGV.shift
        ENV["RAILS_ENV"] = ARGV.shift(2).last if ARGV.first == "-e"
        require "json"
        require_relative "../config/application"
        require_relative "../config/environment"
        eval(ARGV.shift, TOPLEVEL_BINDING, __FILE__)
      RUBY
      "config/application.rb" => %(require "yaml"\nrequire "stringio"\n),
      "config/environment.rb" => <<~'RUBY',
        require_relative "application"
        Dir.glob("#{__dir__}/initializers/*.rb").sort.each { |file| require file }
      RUBY
      "config.ru" => "", "lib/known.txt" => "", "tmp/known" => ""
    }.freeze

    attr_reader :folder, :environment

    def initialize
      @around = Dir.mktmpdir("preload")
      @folder = "#{@around}/app"
      fill
      # Root runs no code from a folder that others may write.
      File.chmod(0o755, folder)
      Dir.mkdir("#{@around}/run", 0o700)
      @environment = OTHERS.to_h { |name| [name, nil] }.merge("XDG_RUNTIME_DIR" => "#{@around}/run")
    end

    def path(name) = "#{folder}/#{name}"

    def write(name, text)
      FileUtils.mkdir_p(File.dirname(path(name)))
      File.write(path(name), text)
    end

    # Runs plain Ruby.
    def plain(*words, **options) = run(words, **options)

    # Runs the command as a fork where possible.
    def preloaded(*words, **options)
      said = run([THRUWAY, "run", "--preload", "--explain", "--", *words], **options)
      said.how = said.err.scan(/^thruway: preload: (.*)/).flatten.last.to_s
      said.err.gsub!(/^thruway: .*\n/, "")
      said
    end

    # Runs a command as a fork of a template, which is made if there is none.
    def forked(*words, **options)
      how = nil
      Preloading.await(-> { "a fork of #{words.inspect}, which is #{how}" }) do
        before = processes
        said = preloaded(*words, **options)
        how = said.how
        return said if said.forked?
        raise "no fork: #{how}\n#{said}" if how.match?(/no template:|cannot be asked|runs nothing/)

        await_another(before)
      end
    end

    def reports = JSON.parse(thruway("preload", "status", "--json"))

    def templates = reports.select { |report| report["state"] == "waits" }

    # Waits until a template listens, or it is said why there is none; answers with the reason.
    def await_template(count = 1)
      Preloading.await("#{count} templates, or a reason for none") do
        return File.read(refusals.first) if refusals.any?

        templates.size >= count
      end
      nil
    end

    def await_file(name)
      Preloading.await("the file #{name}") { File.size?(path(name)) }
      File.read(path(name))
    end

    def thruway(*words, **options)
      said = run([THRUWAY, *words], **options)
      raise "#{words}: #{said}" unless said.status.success?

      said.out
    end

    def remove
      thruway("preload", "stop", "--all", chdir: @around)
    ensure
      FileUtils.rm_rf(@around)
    end

    private

    def fill
      FILES.each { |name, text| write(name, text) }
      File.chmod(0o755, path("bin/rails"))
    end

    # While a template is being made, another boot would only delay it.
    def await_another(before)
      100.times do
        break if (processes - before).any? || refusals.any?

        sleep 0.02
      end
      nil
    end

    def processes = templates.map { |template| template["process"] }

    def refusals = Dir["#{@around}/run/thruway/preload/*.refusal"]

    def run(words, env: {}, input: "", **options)
      with_streams do |given, out, err|
        File.write(given, input)
        options = { in: given, out: out, err: err, chdir: folder, **options }
        process = spawn(environment.merge(env), *words, **options)
        status = Preloading.status_of(process, words.inspect)
        Said.new(File.read(out), File.read(err), status)
      end
    end

    # The streams are files, so the test does not wait for processes that keep them open.
    def with_streams
      folder = Dir.mktmpdir("streams", @around)
      yield(*%w[in out err].map { |name| "#{folder}/#{name}" })
    ensure
      FileUtils.rm_rf(folder) if folder
    end
  end

  # The example application, which uses Rails.
  class RailsApplication < Application
    def initialize
      super
      # The first boot makes a database.
      plain("bin/rails", "runner", "0")
    end

    private

    def fill
      FileUtils.cp_r(EXAMPLE, folder)
      FileUtils.rm_rf("#{folder}/tmp")
      FileUtils.mkdir_p(%w[config/initializers log tmp].map { |name| path(name) })
    end
  end

  # An application for the length of a block.
  def application(kind = Application)
    skip_without("rails") if kind == RailsApplication
    application = kind.new
    yield application
  ensure
    application&.remove
  end

  def assert_said(plain, forked, how = "as a fork")
    return pass if plain.to_s == forked.to_s

    flunk "#{how}\n-- plain\n#{plain}\n-- preloaded\n#{forked}"
  end

  def assert_ends(process)
    pass if Preloading.await("the end of process #{process}") { !Preloading.runs?(process) }
  end
end
