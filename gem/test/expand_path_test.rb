# frozen_string_literal: true

require "minitest/autorun"
require "pathname"
require "tmpdir"
require "thruway"

# `Thruway.expand_path` beside `File.expand_path`. THRUWAY_CASES says how many random names are
# compared (`cargo x fuzz` asks for a million), THRUWAY_SEED which.
class ExpandPathTest < Minitest::Test
  VECTORS = File.expand_path("../../crates/resolve/tests/vectors", __dir__)
  CASES = Integer(ENV.fetch("THRUWAY_CASES", "20000"))
  SEED = Integer(ENV.fetch("THRUWAY_SEED", "0"))
  PARTS = ["/", "/", "//", ".", "..", "...", "a", "b.c", " ", "~", "~root", "~nobody/", "~none",
           "\\", "C:", ".a", "a.", "é", "\n", "\xFF", "あ/"].freeze
  ENCODINGS = %w[UTF-8 UTF-8 UTF-8 US-ASCII BINARY ISO-8859-1 Shift_JIS UTF-16LE].freeze

  def test_a_relative_name_starts_at_the_base
    assert_equal "/srv/b", Thruway.expand_path("a/../b", "/srv")
    assert_equal File.join(Dir.pwd, "b"), Thruway.expand_path("b")
  end

  def test_what_has_a_path_is_a_name
    assert_equal "/srv/b", Thruway.expand_path(Pathname("b"), Pathname("/srv"))
    error = assert_raises(TypeError) { Thruway.expand_path(1, "/srv") }
    assert_equal "no implicit conversion of Integer into String", error.message
  end

  def test_a_flavour_that_is_not_known_is_named
    error = assert_raises(ArgumentError) { Thruway.expand_path("a", flavour: :vms) }
    assert_equal "unknown flavour :vms: use :posix or :windows", error.message
  end

  def test_only_expand_path_is_for_others
    assert_raises(NoMethodError) { Thruway.expand_posix("a", "/") }
  end

  def test_rubys_vectors_for_posix_hold_for_ruby_and_for_thruway
    in_surroundings("/", "/home/ruby") do
      vectors("ruby_posix.tsv") do |name, base, expected|
        assert_equal expected, answer(:bytes) { File.expand_path(name, base) }
        assert_equal expected, answer(:bytes) { Thruway.expand_path(name, base) }
      end
    end
  end

  def test_rubys_vectors_for_windows
    in_surroundings("/", "C:/UserHome") do
      vectors("ruby_windows.tsv") do |name, base, expected|
        windows = answer(:bytes) { Thruway.expand_path(name, base, flavour: :windows) }
        assert_equal expected, windows, "#{name.inspect} in #{base.inspect}"
      end
    end
  end

  def test_a_character_that_hides_a_separator_is_no_separator
    name = "表\\a".encode(Encoding::Windows_31J)
    expanded = Thruway.expand_path(name, "D:/", flavour: :windows)
    assert_equal ["D:/表/a", Encoding::Windows_31J], [expanded.encode("UTF-8"), expanded.encoding]
  end

  def test_ruby_has_the_last_word_on_encodings
    name = "a\xE3".dup.force_encoding("US-ASCII")
    [nil, "/", "/é", "~"].each { |base| assert_same_answer name, base }
  end

  def test_a_home_that_is_no_absolute_path_is_refused_in_rubys_words
    ["relative", "", nil].each do |home|
      in_surroundings("/", home) do
        ["~", "~/a", "~root"].each { |name| assert_same_answer name, nil }
        assert_same_answer "a", "~"
      end
    end
    in_surroundings("/", "/x/../y") do
      ["~/a", "~/../.."].each { |name| assert_same_answer name, nil }
    end
  end

  def test_a_current_folder_that_is_gone_is_told_as_ruby_tells_it
    reader, writer = IO.pipe
    pid = fork do
      Dir.chdir(Dir.mktmpdir)
      Dir.rmdir(Dir.pwd)
      both = [File, Thruway].map { |module_| answer(:itself) { module_.expand_path("a") } }
      writer.write(both.uniq.size == 1 && both.first.start_with?("!") ? "same" : both.inspect)
      exit!(0)
    end
    writer.close
    Process.wait(pid)
    assert_equal "same", reader.read
  end

  def test_random_names_are_expanded_as_ruby_expands_them
    random = Random.new(SEED)
    CASES.times do
      base = random_name(random) unless random.rand(3).zero?
      assert_same_answer random_name(random), base
    end
  end

  def test_nothing_is_kept_of_names_that_are_done
    expand = lambda do |rounds|
      rounds.times { |n| Thruway.expand_path("../a#{n}", "/srv/x") }
      GC.start
      Integer(File.read("/proc/self/statm").split[1])
    end
    before = expand.call(20_000)
    assert_operator expand.call(200_000), :<, before + 2000, "pages"
  end

  private

  def random_name(random)
    parts = Array.new(random.rand(7)) { PARTS.sample(random: random) }
    parts.join.dup.force_encoding(ENCODINGS.sample(random: random))
  end

  def assert_same_answer(name, base)
    ruby = answer(:inspect_all) { File.expand_path(name, base) }
    ours = answer(:inspect_all) { Thruway.expand_path(name, base) }
    assert ruby == ours, lambda {
      "#{name.inspect} (#{name.encoding}) in #{base.inspect} (#{base&.encoding}): " \
        "#{ours.inspect}, and Ruby says #{ruby.inspect}"
    }
  end

  # Returns the bytes of the result, or the result with its encoding, or the error's message after
  # `!`.
  def answer(what)
    path = yield
    what == :bytes ? path.b : [path.b, path.encoding]
  rescue ArgumentError, EncodingError, SystemCallError => error
    what == :inspect_all ? [error.class, error.message] : "!#{error.message}".b
  end

  def in_surroundings(folder, home)
    old = ENV.fetch("HOME", nil)
    ENV["HOME"] = home
    Dir.chdir(folder) { yield }
  ensure
    ENV["HOME"] = old
  end

  def vectors(file)
    rows = File.readlines(File.join(VECTORS, file), chomp: true).grep_v(/\A#/)
    assert_operator rows.size, :>, 20
    rows.each do |row|
      name, base, expected = row.split("\t", -1).map { |column| unescape(column) }
      yield name, base == "-" ? nil : base, expected.b
    end
  end

  # Replaces `\xHH` with the byte.
  def unescape(column)
    column.b.gsub(/\\x(\h\h)/) { $1.hex.chr }.force_encoding(Encoding::UTF_8)
  end
end
