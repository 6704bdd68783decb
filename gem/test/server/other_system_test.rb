# frozen_string_literal: true

require "minitest/autorun"
require "open3"
require "rbconfig"
require "tmpdir"

# The gem on systems other than Linux, where its extension has no server.
class OtherSystemTest < Minitest::Test
  LIBRARY = File.expand_path("../../lib", __dir__)

  # The part of the extension that exists on all systems.
  EXTENSION = <<~RUBY
    module Thruway
      def self.expand_posix(*) = nil
      def self.expand_windows(*) = nil
    end
  RUBY

  def test_names_are_there
    out, err, = run_with("require 'thruway'; puts Thruway.respond_to?(:expand_path)")
    assert_equal ["true\n", ""], [out, err]
  end

  def test_what_serves_says_where_it_does
    %w[server/server server/listeners launch/launcher handler cli].each do |feature|
      _, err, status = run_with("require 'thruway/#{feature}'")
      refute_predicate status, :success?
      message = "thruway serves on Linux only, and this is #{RUBY_PLATFORM} (NotImplementedError)"
      assert_includes err.lines.first, message, feature
    end
  end

  private

  # Runs a script with an extension that lacks the engine.
  def run_with(script)
    Dir.mktmpdir do |folder|
      Dir.mkdir("#{folder}/thruway")
      File.write("#{folder}/thruway/thruway.rb", EXTENSION)
      Open3.capture3(RbConfig.ruby, "-I#{folder}", "-I#{LIBRARY}", "-e", script)
    end
  end
end
