# frozen_string_literal: true

# The file calls of `require` on Windows, counted by Wine, against tests/budgets/windows.tsv.

require_relative "gem_home"
require_relative "wine_test"

class WindowsCountsTest < WineTest
  BUDGETS = File.expand_path("../budgets/windows.tsv", __dir__)
  # A call of a thread for a path, in Wine's trace.
  CALL = /\A\h+:trace:file:nt_to_unix_file_name_no_root/
  MODES = { "validated" => ["--read-only"], "frozen" => ["--frozen"] }.freeze

  # The names that the program's thread looks up between two marks. Programs that Wine itself starts
  # write to the same file.
  def lookups(trace)
    lines = trace.lines.drop_while { |line| !line.include?("begin-mark") }
    thread = lines.first[/\A\h+:/]
    lines = lines.take_while { |line| !line.include?("end-mark") }
    lines = lines.select { |line| line.start_with?(thread) && line.match?(CALL) }
    lines.reject! { |line| line.include?("begin-mark") }
    lines.map { |line| line[/ L"(.+?)"/, 1].tr("\\", "/").squeeze("/") }
  end

  # Writes main.rb, which runs `body` between the marks and says what it has loaded.
  def write_main(before, body)
    write("main.rb", <<~RUBY)
      $LOAD_PATH.unshift("\#{__dir__}/lib")
      #{before}
      File.exist?("Z:/begin-mark")
      begin_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      #{body}
      spent_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begin_s
      File.exist?("Z:/end-mark")
      warn("took \#{spent_s}") if ENV["TELL_TIME"]
      puts $LOADED_FEATURES
    RUBY
  end

  # The file calls of the body, with the pack in each of its modes.
  def assert_counts(workload, *words)
    expected = plain(*words)
    assert_equal ["", 0], expected.drop(1)
    2.times { assert_equal expected, packed(*words) }
    MODES.each do |mode, with|
      out, trace = packed(*words, with: with, debug: "+file")
      assert_equal expected.first, out
      assert_budget(workload, mode, lookups(trace))
    end
    report(workload, *words) unless IS_QUICK
  end

  # Calls for folders are not held to a budget: a folder is examined again after a second without a
  # call, so their number depends on how busy the machine is.
  def assert_budget(workload, mode, names)
    count = names.count { |name| name.match?(%r{/lib/.+\.rb\z}) }
    budget = File.readlines(BUDGETS, chomp: true).grep_v(/\A#/).map { |line| line.split("\t") }
    line = budget.find { |known| known.first(2) == [workload, mode] }
    assert_equal Integer(line.last), count, "#{workload}, #{mode}: #{names}"
  end

  # Tells how many file calls plain Ruby makes, and how long each way takes under Wine.
  def report(workload, *words)
    _, trace = plain(*words, debug: "+file")
    count = lookups(trace).size
    ways = { "plain" => -> { plain(*words) } }
    MODES.each { |mode, with| ways[mode] = -> { packed(*words, with: with) } }
    ENV["TELL_TIME"] = "1"
    times = ways.transform_values { [] }
    3.times { ways.each { |way, run| times[way] << run.call[1][/^took (\S+)/, 1].to_f } }
    shown = times.map { |way, all| format("%<way>s %<time>.3f s", way: way, time: all.sort[1]) }
    puts "windows: #{workload}: plain Ruby makes #{count} file calls",
         "windows: #{workload}: medians of 3 under Wine: #{shown.join(", ")}"
  ensure
    ENV.delete("TELL_TIME")
  end

  def test_a_feature_costs_one_call_and_none_with_a_frozen_pack
    count = IS_QUICK ? 10 : 1000
    (0..count).each { |number| write("lib/name_of_feature_#{number}.rb", "") }
    body = "#{count}.times { |number| require \"name_of_feature_\#{number + 1}\" }"
    write_main('require "name_of_feature_0"', body)
    assert_counts("empty-#{count}", "--disable=gems", "main.rb")
  end

  def test_features_that_require_the_next_cost_one_call_and_none_with_a_frozen_pack
    count = IS_QUICK ? 10 : 100
    count.times { |number| write("lib/in/f#{number}.rb", "require_relative \"f#{number + 1}\"\n") }
    write("lib/in/f#{count}.rb", "")
    write("lib/first.rb", "")
    write_main('require "first"', 'require "in/f0"')
    assert_counts("nested-#{count}", "--disable=gems", "main.rb")
  end

  # RubyGems itself asks about the first feature of each of the five gems that are required by name.
  def test_a_program_with_gems_costs_one_call_a_feature_and_none_with_a_frozen_pack
    skip "THRUWAY_WINDOWS_ALL is not set" if IS_QUICK
    home = "#{@root}/gems"
    missing = GemHome.build(home, %w[mustermann rack rake rubocop-ast tilt])
    skip "this machine has no gem #{missing}" if missing
    ENV["GEM_HOME"] = ENV["GEM_PATH"] = windows(home)
    write_main("", "%w[mustermann rack rake rubocop/ast tilt].each { |name| require name }")
    assert_counts("gems", "main.rb")
  ensure
    ENV.delete("GEM_HOME")
    ENV.delete("GEM_PATH")
  end
end
