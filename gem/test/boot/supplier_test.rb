# frozen_string_literal: true

require "booting"

# Another library may supply compiled code, as bootsnap does: the report says so.
class SupplierTest < Minitest::Test
  include Booting

  SUPPLIER = <<~RUBY
    class RubyVM::InstructionSequence
      singleton_class.prepend(Module.new { def load_iseq(_) = nil })
    end
  RUBY

  def test_the_report_names_another_supplier_of_code
    skip_if_portable "takes no code"
    program("main.rb" => "require 'other'\n", "lib/other.rb" => SUPPLIER) do |program|
      said = program.run("--explain").err
      named = "code is asked of another load_iseq first: #{program.folder}/lib/other.rb"
      assert_includes said, named
    end
    program("main.rb" => "p 1\n") do |program|
      refute_includes program.run("--explain").err, "another load_iseq"
    end
  end
end
