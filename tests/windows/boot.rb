# frozen_string_literal: true

# `thruway run` on Windows, as far as Wine is Windows: run by `cargo x windows`.

require_relative "wine_test"

class WindowsBootTest < WineTest
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
    refute_match(/portable mode/, report)
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
