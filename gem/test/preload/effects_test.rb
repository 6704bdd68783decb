# frozen_string_literal: true

require "preloading"

# Code that acts while it is loaded, before the application, is never loaded by a template.
class PreloadEffectsTest < Minitest::Test
  include Preloading

  # Files that act, each with the reason why it is not loaded. Each leaves a line in `acted`, if it
  # can.
  ACTS = {
    "File.write('acted', \"1\\n\", mode: 'a')" => "writes acted",
    "File.open('acted', File::WRONLY | File::CREAT | File::APPEND) { _1.puts 1 }" => "writes acted",
    "Dir.mkdir('made') rescue 0" => "writes made",
    "File.rename('tmp/known', 'tmp/renamed') rescue 0" => "writes tmp/known",
    "File.symlink('lib', 'linked') rescue 0" => "changes linked",
    "File.link('lib/acting.rb', 'linked') rescue 0" => "changes linked",
    "File.mkfifo('made') rescue 0" => "changes made",
    "File.truncate('tmp/known', 0) rescue 0" => "changes tmp/known",
    "File.chmod(0o700, 'lib')" => "changes lib",
    "File.chown(nil, nil, 'lib')" => "changes lib",
    "system('echo 1 >>acted')" => "starts ",
    "`echo 1 >>acted`" => "starts ",
    "Process.wait(spawn('echo 1 >>acted'))" => "starts ",
    "Process.wait(fork { File.write('acted', \"1\\n\", mode: 'a') })" => "starts another process",
    "require 'socket'; UNIXServer.new(\"\\0thruway-\#{Process.pid}\").close" => "binds a socket",
    "require 'socket'; TCPSocket.new('127.0.0.1', 1) rescue 0" => "connects a socket",
    "Process.kill(:CONT, Process.ppid)" => "sends a signal",
    "puts 'acted'" => "writes to its standard output"
  }.freeze

  HARMLESS = [
    "File.write(File::NULL, 'x')", "warn 'deprecated'", "File.read('lib/known.txt')",
    "require 'fileutils'; FileUtils.mkdir_p('tmp/cache'); File.write('tmp/cache/x', 'y')"
  ].freeze

  def test_what_acts_acts_once_a_run
    ACTS.each do |code, reason|
      application do |made|
        begin_with(made, code)
        made.preloaded("bin/rails", "x", "puts 2")
        why = made.await_template
        assert_includes why.to_s, "acting.rb acts as it is loaded: it #{reason}", code
        acted = made.path("acted")
        assert_equal "1\n", File.read(acted), code if File.exist?(acted)
        assert_said made.plain("bin/rails", "x", "puts 2"),
                    made.preloaded("bin/rails", "x", "puts 2"), code
      end
    end
  end

  def test_what_only_reads_is_loaded_in_advance
    HARMLESS.each do |code|
      application do |made|
        begin_with(made, code)
        assert_said made.plain("bin/rails", "x", "puts 2"), made.forked("bin/rails", "x", "puts 2")
      end
    end
  end

  private

  def begin_with(made, code)
    made.write("lib/acting.rb", "#{code}\n")
    script = Application::FILES["bin/rails"]
    made.write("bin/rails", script.sub(/^require/, "require_relative '../lib/acting'\n\\0"))
    File.chmod(0o755, made.path("bin/rails"))
  end
end
