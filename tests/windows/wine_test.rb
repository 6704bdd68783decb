# frozen_string_literal: true

# The common part of the tests of Windows: programs under Wine. THRUWAY_WINDOWS is the folder
# of a release, WINDOWS_RUBY a ruby.exe.

require "fileutils"
require "minitest/autorun"
require "tmpdir"

$stdout.sync = true

class WineTest < Minitest::Test
  RELEASE = ENV.fetch("THRUWAY_WINDOWS")
  RUBY = ENV.fetch("WINDOWS_RUBY")
  IS_QUICK = !ENV["THRUWAY_WINDOWS_ALL"]
  BEAT_S = 5
  LIMIT_S = 600

  def setup
    @root = Dir.mktmpdir("thruway windows")
    @folder = "#{@root}/app"
    @pack = "#{@folder}/boot.pack"
    FileUtils.mkdir_p("#{@folder}/lib")
  end

  def teardown
    FileUtils.rm_rf(@root)
  end

  # Output, errors and exit status, without the carriage returns of a console. Files take output:
  # a service that Wine starts meanwhile may keep a pipe open.
  def run_in_wine(*words, debug: "-all")
    files = %w[out errors].map { |name| "#{@root}/#{name}" }
    streams = { in: File::NULL, out: files.first, err: files.last }
    environment = { "WINEDEBUG" => debug }
    streams.update(chdir: @folder, pgroup: true)
    wine = Process.detach(Process.spawn(environment, "wine", *words, **streams))
    await(wine, words)
    said = files.map { |file| File.binread(file).force_encoding(Encoding::UTF_8).delete("\r") }
    [*said, wine.value.exitstatus]
  end

  # Waits for a program under Wine, with a line from time to time. One that never ends is killed.
  def await(wine, words)
    waited_s = 0
    until wine.join(BEAT_S)
      waited_s += BEAT_S
      puts "windows: #{words.join(" ")[0, 100].dump} runs for #{waited_s} s"
      next if waited_s < LIMIT_S

      Process.kill(:KILL, -wine.pid)
      flunk "#{words.inspect} did not end in #{LIMIT_S} s"
    end
  end

  def plain(*words, **options)
    run_in_wine(RUBY, *words, **options)
  end

  def packed(*words, with: [], **options)
    thruway("run", "--pack", windows(@pack), *with, "--", "ruby.exe", *words, **options)
  end

  def thruway(*words, **options)
    run_in_wine("#{RELEASE}/bin/thruway.exe", *words, **options)
  end

  def windows(path)
    "Z:#{path}"
  end

  def write(name, text)
    path = "#{@folder}/#{name}"
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end
end
