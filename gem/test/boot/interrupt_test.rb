# frozen_string_literal: true

require "booting"

# Ctrl-C while files are loaded.
class InterruptTest < Minitest::Test
  include Booting

  MAIN = <<~'RUBY'
    # Many files, so that most of the time is spent where one is loaded.
    methods = Array.new(60) { |number| "def a#{number}(list) = list.map { |one| one + #{number} }" }
    files = Array.new(40) { |number| File.expand_path("loaded#{number}.rb") }
    files.each { |file| File.write(file, methods.join("\n")) }
    lost = 0
    200.times do
      sender = Thread.new do
        sleep rand * 0.004
        Process.kill("INT", Process.pid)
      end
      begin
        files.each { |file| load file }
        sender.join
        sleep 0.05
        lost += 1
      rescue Interrupt
        sender.join
      end
    end
    puts "#{lost} lost"
  RUBY

  def test_none_is_lost
    assert_same_program(MAIN)
  end
end
