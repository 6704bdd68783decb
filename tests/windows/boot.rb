# frozen_string_literal: true

# `thruway run` on Windows, as far as Wine is Windows: run by `cargo x windows`. THRUWAY_WINDOWS is
# the folder of a release, WINDOWS_RUBY a ruby.exe; both are started by Wine.

require "fileutils"
require "minitest/autorun"
require "tmpdir"

$stdout.sync = true

class WindowsBootTest < Minitest::Test
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

  # The program's answer with the pack: learning, and then from the pack.
  def assert_same_with_the_pack(*words)
    expected = plain(*words)
    assert_equal expected, packed(*words)
    out, errors, status = packed(*words, with: ["--explain"])
    report, errors = errors.lines.partition { |line| line.start_with?("thruway: ") }
    assert_equal expected, [out, errors.join, status]
    report.join
  end

  def test_a_program_says_the_same_and_its_code_comes_from_the_pack
    write("lib/first.rb", <<~RUBY)
      require_relative "below/second"
      FIRST = [__FILE__, __dir__, __LINE__]
    RUBY
    write("lib/below/second.rb", "def second\n  raise 'no'\nend\n")
    write("lib/below/shared.rb", "sleep 0.1\nputs :loaded\n")
    write("main.rb", <<~RUBY)
      $LOAD_PATH.unshift("\#{__dir__}/lib".tr("/", "\\\\"))
      require "first"
      p Array.new(4) { Thread.new { require "below/shared" } }.map(&:value).count(true)
      require "stringio"
      require "json"
      p JSON.parse("[1]"), StringIO.new("a").read, $LOADED_FEATURES.grep(/stringio|parser/)
      require "FIRST" rescue p $!
      require "nowhere" rescue puts $!.message
      puts FIRST, $LOADED_FEATURES.grep(/lib.(first|below)/i)
      second rescue puts $!.backtrace
      warn "to stderr"
      exit 7
    RUBY
    report = assert_same_with_the_pack("--disable=gems", "main.rb")
    assert_match(/^thruway: in the portable mode/, report)
    assert_match(/^thruway: [1-9]\d* features from the pack, 0 compiled$/, report)
  end

  def test_an_edit_is_seen_and_a_pack_in_use_gives_way_to_the_next
    write("lib/edited.rb", "puts 1\n")
    words = ["--disable=gems", "-I", "lib", "-e", "require 'edited'"]
    assert_equal "1\n", packed(*words).first
    write("lib/edited.rb", "puts 2\n")
    assert_equal "2\n", packed(*words).first
    # The last process had the pack mapped when it wrote the next one.
    out, errors = packed(*words, with: ["--explain"])
    assert_equal "2\n", out
    assert_match(/ 0 compiled$/, errors)
    assert_equal ["boot.pack"], Dir.children(@folder).grep(/pack/)
    assert_match(/, none damaged$/, thruway("pack", "verify", windows(@pack)).first)
  end

  def test_random_changes_are_seen_as_plain_ruby_sees_them
    rounds, changes = IS_QUICK ? [1, 30] : [20, 500]
    script = windows(File.expand_path("edits.rb", __dir__))
    %w[plain boots].each { |name| Dir.mkdir("#{@folder}/#{name}") }
    rounds.times do |seed|
      words = ["--disable=gems", script]
      numbers = [seed.to_s, changes.to_s]
      expected = plain(*words, windows("#{@folder}/plain"), *numbers)
      said, *others = packed(*words, windows("#{@folder}/boots"), *numbers)
      assert_equal expected.first.lines, said.gsub("/boots/", "/plain/").lines, "seed #{seed}"
      assert_equal expected.drop(1), others
    end
  end

  # The names that the program's thread looks up between two marks, according to Wine's trace.
  # Programs that Wine itself starts write to the same file.
  def lookups(trace)
    lines = trace.lines.drop_while { |line| !line.include?("begin-mark") }
    thread = lines.first[/\A\h+:/]
    lines = lines.take_while { |line| !line.include?("end-mark") }
    names = lines.grep(/\A#{thread}trace:file:nt_to_unix_file_name_no_root/)
    names.reject { |line| line.include?("begin-mark") }
  end

  def test_a_feature_costs_a_lookup_of_its_folder_and_one_of_itself
    count = 10
    (0..count).each { |number| write("lib/name_of_feature_#{number}.rb", "") }
    write("main.rb", <<~RUBY)
      $LOAD_PATH.unshift("\#{__dir__}/lib")
      require "name_of_feature_0"
      File.exist?("Z:/begin-mark")
      #{count}.times { |number| require "name_of_feature_\#{number + 1}" }
      File.exist?("Z:/end-mark")
    RUBY
    words = ["--disable=gems", "main.rb"]
    assert_equal plain(*words), packed(*words)
    _, trace = packed(*words, with: ["--read-only"], debug: "+file")
    found = lookups(trace).map { |line| line[/ L"(\S+)"/, 1].split("\\").last }
    assert_equal (1..count).flat_map { |number| ["lib", "name_of_feature_#{number}.rb"] }, found
    return if IS_QUICK

    _, trace = plain(*words, debug: "+file")
    assert_operator lookups(trace).size, :>=, 6 * count
  end

  def test_verbs_of_linux_say_so
    %w[serve mount trace load ctl preload].each do |verb|
      expected = ["", "thruway: #{verb} works on Linux only\n", 2]
      assert_equal expected, thruway(verb, "--any", "thing")
    end
    _, errors, status = thruway("run", "--preload", "--", "ruby.exe", "-e", "1")
    assert_equal ["thruway: --preload works on Linux only\n", 2], [errors.lines.first, status]
  end

  def test_a_command_that_is_not_there_has_the_exit_status_of_shells
    _, errors, status = thruway("run", "--", "no-such-program")
    assert_match(/\Athruway: .*no-such-program/, errors)
    assert_equal 127, status
  end

  def test_doctor_finds_ruby_and_the_extension
    out, = thruway("doctor")
    assert_match(/^ok +ruby +ruby 3\.1/, out)
    assert_match(/^ok +boot +the extension loads$/, out)
  end
end
