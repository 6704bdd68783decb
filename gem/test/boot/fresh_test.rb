# frozen_string_literal: true

require "booting"

# A program sees changes of files, during a run or between two runs, as it does in plain Ruby. The
# table in docs/reference/verbs/run.md lists the promises of each mode; `freshness_test.rb` tests
# them with random changes.
class FreshTest < Minitest::Test
  include Booting

  VALIDATED = [[], [], ["--digest"]].freeze
  ALL = [*VALIDATED, ["--frozen"], ["--trust-image"]].freeze

  # The program restores the files, so that each run finds the same ones.
  AGAIN = <<~'RUBY'
    require "./lib/g"
    File.write("lib/g.rb", "puts :second\n")
    load "./lib/g.rb"
    system("echo 'puts :third' > lib/g.rb")
    load "./lib/g.rb"
    system("echo 'puts :fourth' > lib/h.rb")
    require_relative "lib/h"
    File.open("lib/h.rb", "r+") { |file| file.write("puts :fifth; #") }
    load "lib/h.rb"
    File.truncate("lib/h.rb", 11)
    load "#{__dir__}/lib/h.rb"
    File.write("lib/g.rb", "puts :first\n")
    File.write("lib/h.rb", "puts :begin\n")
  RUBY

  def test_a_file_that_was_required_and_then_changed_is_loaded_as_it_is_now
    files = { "main.rb" => AGAIN, "lib/g.rb" => "puts :first\n", "lib/h.rb" => "puts :begin\n" }
    program(files) { |it| same_in(it, ALL, learns: "require './lib/g'\nrequire './lib/h'\n") }
  end

  # A child that continues to run reports through a pipe.
  CHILD = <<~'RUBY'
    $LOAD_PATH.unshift("#{__dir__}/early", "#{__dir__}/lib")
    require "one"
    reads, writes = IO.pipe
    asks, asked = IO.pipe
    child = fork do
      asked.close
      while (text = asks.gets)
        eval(text)
        writes.puts
      end
    end
    tell = ->(text) { [asked.puts(text), reads.gets] }
    tell.(%q(File.write("early/two.rb", "puts :early\n")))
    require "two"
    tell.(%q(File.write("early/three.rb", "puts :early\n")))
    require "three"
    tell.(%q(File.rename("early", "away")))
    begin; require "four"; rescue LoadError; puts $!.message; end
    tell.(%q(File.symlink("other", "early")))
    require "five"
    tell.(%q(File.unlink("early"); File.rename("away", "early")))
    tell.(%q(File.unlink("early/two.rb", "early/three.rb")))
    require "four"
    asked.close
    Process.wait(child)
  RUBY

  CHILDREN = { "lib/one.rb" => "puts 1\n", "lib/two.rb" => "puts 2\n", "lib/three.rb" => "puts 3\n",
               "lib/five.rb" => "puts 5\n", "other/five.rb" => "puts :five\n",
               "early/four.rb" => "puts 4\n" }.freeze

  def test_what_a_child_does_that_is_still_running_is_seen
    learns = "$:.unshift(\"\#{__dir__}/early\", \"\#{__dir__}/lib\")\n" \
             "%w[one two three four five].each { |name| require name }\n"
    program("main.rb" => CHILD, **CHILDREN) { |it| same_in(it, ALL, learns: learns) }
  end

  def test_a_file_that_is_gone_is_looked_for_elsewhere
    skip "takes x86-64" unless RUBY_PLATFORM.start_with?("x86_64")
    # A system call that the boot does not notice: rename.
    main = <<~'RUBY'
      require "there"
      syscall(82, "#{__dir__}/lib/part.rb", "#{__dir__}/early/part.rb")
      require "part"
      syscall(82, "#{__dir__}/early/part.rb", "#{__dir__}/lib/part.rb")
    RUBY
    learns = "$:.unshift(\"\#{__dir__}/early\", \"\#{__dir__}/lib\")\n"
    main = "#{learns}#{main}"
    files = { "main.rb" => main, "lib/there.rb" => "", "lib/part.rb" => "puts __FILE__\n",
              "early/x" => "" }
    program(files) do |it|
      same_in(it, VALIDATED, switches: ["-W0"],
                             learns: "#{learns}require 'there'\nrequire 'part'\n")
    end
  end

  def test_frozen_what_a_child_makes_is_found
    main = "require 'there'\nsystem('echo \"puts :made\" > lib/gen.rb')\nrequire 'gen'\n" \
           "File.unlink('lib/gen.rb')\n"
    program("main.rb" => main, "lib/there.rb" => "") { |it| same_in(it, ALL) }
  end

  def test_frozen_a_release_that_was_unpacked_over_the_old_one_is_run
    files = { "main.rb" => "require 'a'\nrequire 'yaml'\np YAML.load_file('lib/t.yml')\n",
              "lib/a.rb" => "puts :old\n", "lib/t.yml" => "a: 1\n" }
    program(files) do |it|
      same = Time.at(1_700_000_000)
      names = %w[lib/a.rb lib/t.yml lib .]
      names.each { |name| File.utime(same, same, "#{it.folder}/#{name}") }
      it.age
      read = { "a" => 1 }
      old = "old\n#{read}\n"
      2.times { assert_equal old, it.run.out }
      assert_equal old, it.run("--frozen", "--explain").out
      FileUtils.cp_r(it.folder, "#{it.folder}.new")
      File.write("#{it.folder}.new/lib/a.rb", "puts :new\n")
      File.write("#{it.folder}.new/lib/t.yml", "a: 2\n")
      names.each { |name| File.utime(same, same, "#{it.folder}.new/#{name}") }
      assert system("tar -C #{it.folder}.new -cf - . | tar -C #{it.folder} -xf -")
      assert_equal same, File.mtime("#{it.folder}/lib")
      assert_said it.plain, it.run("--frozen"), "--frozen"
    end
  end

  # The program restores the files, so that each run finds the same ones.
  LINKED = <<~'RUBY'
    $LOAD_PATH.unshift("#{__dir__}/early", "#{__dir__}/lib")
    require "part"
    File.symlink("early/part.rb", "link")
    File.write("link", "puts :made\n")
    $LOADED_FEATURES.pop
    require "part"
    File.unlink("link", "early/part.rb")
    $LOADED_FEATURES.pop
    require "part"
  RUBY

  def test_a_file_that_is_made_at_the_end_of_a_link_is_found
    files = { "main.rb" => LINKED, "lib/part.rb" => "puts :part\n", "early/other.rb" => "" }
    program(files) { |it| same_in(it, ALL, learns: LINKED.lines.first(2).join) }
  end

  # The program restores the files, so that each run finds the same ones.
  MOUNTED = <<~'RUBY'
    $LOAD_PATH.unshift("#{__dir__}/seen", "#{__dir__}/lib")
    require "sub/late"
    require "sub/part"
    File.write("kept/sub/late.rb", "puts :late\n")
    File.write("kept/sub/part.rb", "puts :edited\n")
    $LOADED_FEATURES.reject! { |feature| feature.start_with?(__dir__) }
    require "sub/late"
    require "sub/part"
    File.unlink("kept/sub/late.rb")
    load "sub/late.rb"
    File.write("kept/sub/part.rb", "puts :part\n")
  RUBY

  MOUNTED_FILES = { "kept/sub/part.rb" => "puts :part\n", "lib/sub/late.rb" => "puts :early\n",
                    "seen/other.rb" => "" }.freeze

  def test_what_is_changed_by_one_path_of_a_mounted_folder_is_seen_by_the_other
    below = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             "mount --bind kept seen && exec \"$@\"", "sh"]
    program("main.rb" => MOUNTED, **MOUNTED_FILES) do |it|
      skip "may not mount" unless system("unshare", "--mount", "true", err: File::NULL)
      same_in(it, ALL, below: below, learns: MOUNTED.lines.first(3).join)
    end
  end

  def test_a_digest_belongs_to_the_code_that_was_compiled_with_it
    program("main.rb" => "require 'a'\n", "lib/a.rb" => "puts :one\n") do |it|
      it.run("--digest")
      it.write("lib/a.rb", "puts :two\n")
      it.age
      assert_equal "two\n", it.run.out
      it.write("lib/a.rb", "puts :one\n")
      it.age
      assert_equal "one\n", it.run("--digest").out
    end
  end

  FORBIDDEN = <<~'RUBY'
    require "etc"
    require "open"
    Process::Sys.setresuid(-1, 65534, -1) if ARGV.empty?
    %w[secret inner/deep].each do |name|
      p require(name)
    rescue LoadError, SystemCallError
      p $!.class, $!.message
    end
    begin; load("#{__dir__}/lib/secret.rb"); rescue LoadError; p $!.message; end
    Process::Sys.setresuid(-1, 0, -1) if ARGV.empty?
  RUBY

  def test_code_of_a_file_that_may_not_be_read_is_not_run
    skip "takes root" unless Process.uid.zero?
    skip "takes a checkout whose folders other users may enter" unless open_to_others?(__dir__)
    files = { "lib/secret.rb" => "puts :secret\n", "lib/inner/deep.rb" => "puts :deep\n",
              "lib/open.rb" => "puts :open\n" }
    program("main.rb" => "require 'open'\nrequire 'etc'\nrequire 'secret'\nrequire 'inner/deep'\n",
            **files) do |it|
      FileUtils.chmod(0o755, [File.dirname(it.folder), it.folder])
      File.chmod(0o600, "#{it.folder}/lib/secret.rb")
      File.chmod(0o700, "#{it.folder}/lib/inner")
      File.chmod(0o644, it.pack) if File.exist?(it.pack)
      it.age
      2.times { it.run }
      it.write("main.rb", FORBIDDEN)
      same_in(it, [["--trust-image"], ["--frozen"], ["--digest"], [], []])
      as_another_user(it)
      without_capabilities(it)
    end
  end

  private

  # Whether other users get to this folder: each folder on the way lets them pass.
  def open_to_others?(folder)
    folder = File.realpath(folder)
    folder = File.dirname(folder) while folder != "/" && File.stat(folder).mode.anybits?(0o001)
    folder == "/"
  end

  # Asserts that every run prints the same as a plain run.
  def same_in(program, modes, switches: [], learns: nil, below: [])
    plain = program.plain(*switches, below: below)
    assert_predicate plain.status, :success?, plain.to_s
    main = File.read("#{program.folder}/main.rb")
    modes.each do |options|
      learn(program, learns, main, switches: switches, below: below) if learns
      run = program.run(*options, switches: switches, below: below)
      assert_said plain, run, options.join(" ")
      program.age
    end
  end

  # Makes the pack learn all files in their current state.
  def learn(program, learns, main, **how)
    program.write("main.rb", learns)
    program.age
    2.times { assert_predicate program.run("--digest", **how).status, :success? }
    program.write("main.rb", main)
  end

  # The pack belongs to root, and every user may read it from the start.
  def as_another_user(program)
    File.chmod(0o644, program.pack)
    FileUtils.chmod(0o755, [File.dirname(program.pack)])
    program.write("main.rb", FORBIDDEN.gsub(/ if ARGV.empty\?/, " if false"))
    same_below(program, %w[setpriv --reuid=65534 --clear-groups])
  end

  def without_capabilities(program)
    File.chown(65_534, nil, "#{program.folder}/lib/secret.rb")
    FileUtils.chown(65_534, nil, "#{program.folder}/lib/inner")
    program.age
    program.write("main.rb",
                  "require 'open'\nrequire 'etc'\nrequire 'secret'\nrequire 'inner/deep'\n")
    2.times { program.run }
    program.write("main.rb", FORBIDDEN.gsub(/ if ARGV.empty\?/, " if false"))
    same_below(program, %w[setpriv --bounding-set=-dac_override,-dac_read_search])
  end

  def same_below(program, words)
    plain = program.plain(below: words)
    assert_match(/LoadError/, plain.out)
    [["--trust-image"], ["--frozen"], ["--digest"], []].each do |options|
      assert_said plain, program.run(*options, below: words), "#{words} #{options}"
    end
  end
end
