# frozen_string_literal: true

require "preloading"

# Files that a boot leaves open are opened again for each command.
class PreloadOpenFilesTest < Minitest::Test
  include Preloading

  def test_each_command_reads_an_open_file_from_where_the_boot_has_left_it
    application do |made|
      made.write("tmp/read", "one\ntwo\nthree\n")
      made.write("config/initializers/open.rb", <<~RUBY)
        FILE = File.open("tmp/read")
        FILE.sysread(4)
        FOLDER = Dir.open("lib")
      RUBY
      words = ["bin/rails", "runner", "p FILE.read, FOLDER.children, FILE.close_on_exec?"]
      plain = made.plain(*words)
      3.times { assert_said plain, made.forked(*words) }
    end
  end

  def test_commands_at_once_have_locks_of_their_own
    application do |made|
      made.write("config/initializers/open.rb", "LOG = File.open('log/own', 'a')\n")
      FileUtils.mkdir_p(made.path("log"))
      flock = "p LOG.flock(File::LOCK_EX | File::LOCK_NB)"
      lock = ->(code) { ["bin/rails", "runner", "#{flock}#{code}"] }
      made.forked(*lock[""])
      inner = [THRUWAY, "run", "--preload", "--", *lock[""]]
      said = made.forked(*lock["; $stdout.flush; system(*#{inner.inspect})"])
      assert_equal "0\nfalse\n", said.out
    end
  end
end
