# frozen_string_literal: true

require "booting"

# Documents in special files, or in files that change. No file is opened a second time, and no
# result is kept for too long.
class SpecialFilesTest < Minitest::Test
  include Booting

  JSON_TEXT = "{\"long\": \"#{"x" * 2000}\"}"

  def test_fifos_are_read_once
    main = <<~'RUBY'
      require "json"
      require "yaml"
      text = "{\"long\": \"#{"x" * 2000}\"}"
      { "x.json" => ->(path) { JSON.parse(File.read(path)) }, "y.json" => JSON.method(:load_file),
        "x.yml" => YAML.method(:load_file), "y.yml" => YAML.method(:unsafe_load_file) }.each do |name, read|
        File.mkfifo(name) unless File.exist?(name)
        child = fork { File.write(name, text) }
        puts "#{name} #{read.call(name).fetch("long").size}"
        Process.wait(child)
      end
    RUBY
    assert_same_program(main)
  end

  def test_standard_input_and_pseudo_files
    main = <<~'RUBY'
      require "json"
      require "yaml"
      reader, writer = IO.pipe
      child = fork do
        writer.close
        $stdin.reopen(reader)
        p JSON.parse(File.read("/dev/stdin")).size, (YAML.load_file("/dev/stdin") rescue $!.class)
      end
      reader.close
      writer.write("{\"long\": \"#{"x" * 2000}\"}")
      writer.close
      Process.wait(child)
      # Its own number is another one each time; what the file is called is not.
      p YAML.load_file("/proc/self/stat").split.first.to_i == $$
      p YAML.load_file("/proc/thread-self/comm") == File.read("/proc/thread-self/comm").chomp
    RUBY
    assert_same_program(main)
  end

  # The stamp of a pseudo file does not change with its content.
  def test_pseudo_files_are_not_kept
    files = { "main.rb" => "require 'yaml'\nsleep 0.03\nYAML.load_file('/proc/uptime')\n" }
    program(files) do |program|
      program.run
      refute_match(/^yaml/, Open3.capture2(THRUWAY, "pack", "info", program.pack).first)
    end
  end

  def test_a_folder_in_the_place_of_a_document_is_none
    main = <<~'RUBY'
      require "yaml"
      begin
        p YAML.load_file("x.yml")
      rescue SystemCallError => error
        p error.class
      end
    RUBY
    program("main.rb" => main, "x.yml" => "a: 1\n") do |program|
      2.times { assert_match(/1/, program.run.out) }
      File.unlink("#{program.folder}/x.yml")
      Dir.mkdir("#{program.folder}/x.yml")
      said = [program.plain, program.run, program.run("--digest"), program.run("--frozen")]
      assert_equal ["Errno::EISDIR\n"], said.map(&:out).uniq
    end
  end

  def test_a_json_file_that_is_made_anew_does_not_let_the_pack_grow
    skip_if_portable "learns no JSON"
    main = <<~'RUBY'
      require "json"
      rounds = Integer(File.read("rounds"))
      rounds.times do |number|
        File.write("x.json", JSON.generate("number" => number, "salt" => rand, "long" => "x" * 2000))
        File.utime(1, 1, "x.json")
        sleep 0.025 if number == rounds - 1 || number < 3
        JSON.parse(File.read("x.json"))
      end
    RUBY
    sizes = [4, 1000, 4, 4].map do |rounds|
      @made ||= Program.new("main.rb" => main, "rounds" => "")
      @made.write("rounds", rounds.to_s)
      assert_predicate @made.run.status, :success?
      shown = Open3.capture2(THRUWAY, "pack", "info", @made.pack).first
      assert_equal "1", shown[/^json +(\d+)/, 1], shown
      File.size(@made.pack)
    end
    assert_operator sizes.max, :<, sizes.first + 4096, sizes.inspect
  ensure
    @made&.remove
  end
end
